"""What ``byoc bench`` and ``byoc profile`` do: networks beside other engines, and call by call."""
