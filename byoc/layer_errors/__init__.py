"""Which layer of a network loses how much accuracy, and which to keep in fp32."""
