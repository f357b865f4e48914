"""Every distinct convolution and product of a network, through each way to its kernel.

``network`` finds the layers, ``single`` writes one of them as a model, ``engines`` says what each
engine makes of it (``doors``, ``tensorised`` and ``algorithms`` hold the longer ones), ``measure``
checks and times, ``tables`` prints.
"""
