"""Write a network of the zoo: ``python -m models resnet50 -o resnet50.onnx``."""

import sys

from byoc.zoo import main

sys.exit(main())
