"""Every distinct convolution and product of a network, through each way to its kernel.

``network`` finds the layers, ``engines`` says what each engine makes of one (``doors``,
``tensorised`` and ``algorithms`` hold the longer ones), ``measure`` checks and times, ``tables``
prints.
"""
