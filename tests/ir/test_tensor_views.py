"""Strided views against NumPy: every view must show the elements that NumPy shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_cc.plan.tensors import CHANNELS_LAST, Buffer, Tensor, strides_for


def plain(shape: tuple[int, ...]) -> Tensor:
    buffer = Buffer("arena", "t0", int(np.prod(shape)), "float32")
    return Tensor(buffer, shape, strides_for(shape, tuple(range(len(shape)))))


def elements(view: Tensor) -> np.ndarray:
    """What the view shows of a buffer that holds 0, 1, 2, ..."""
    memory = np.arange(view.buffer.size, dtype=np.float32)
    return np.lib.stride_tricks.as_strided(
        memory[view.offset :], view.shape, [4 * stride for stride in view.strides]
    )


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


@pytest.mark.slow
@given(shapes, st.data())
def test_permute_then_reshape_is_a_view_or_a_refusal(shape, data):
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    view, expected = plain(shape).permute(axes), numbers(shape).transpose(axes)
    np.testing.assert_array_equal(elements(view), expected)
    flat_factors = data.draw(st.permutations([extent for extent in shape if extent != 1]))
    target = tuple(flat_factors) or (1,)
    reshaped = view.reshape(target)
    if reshaped is not None:
        np.testing.assert_array_equal(elements(reshaped), expected.reshape(target))
    else:  # NumPy must need a copy as well
        assert not np.shares_memory(expected.reshape(target), expected)


@given(shapes, st.data())
def test_slice_starts_and_steps(shape, data):
    begin = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
    steps = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    index = tuple(slice(b, None, s) for b, s in zip(begin, steps, strict=True))
    expected = numbers(shape)[index]
    view = plain(shape).slice(begin, expected.shape, steps)
    np.testing.assert_array_equal(elements(view), expected)


@given(shapes, st.data())
def test_order_is_found_again(shape, data):
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    tensor = Tensor(
        Buffer("arena", "t0", int(np.prod(shape)), "float32"), shape, strides_for(shape, order)
    )
    assert tensor.is_dense(order)
    wide = [axis for axis in tensor.order() if shape[axis] != 1]
    assert wide == [axis for axis in order if shape[axis] != 1]


def test_broadcast_repeats_without_memory():
    view = plain((3, 1)).broadcast_to((2, 3, 4))
    np.testing.assert_array_equal(elements(view), np.broadcast_to(numbers((3, 1)), (2, 3, 4)))
    assert view.order() is None


def test_pixel_stride():
    shape = (2, 8, 5, 7)
    assert (
        Tensor(
            Buffer("arena", "t", 560, "float32"), shape, strides_for(shape, CHANNELS_LAST)
        ).pixel_stride()
        == 8
    )
    assert plain(shape).pixel_stride() is None
    assert plain((2, 1, 5, 7)).pixel_stride() == 1
    assert plain((1, 8, 1, 1)).pixel_stride() == 8
    wide = Tensor(
        Buffer("arena", "t", 2240, "float32"),
        (2, 32, 5, 7),
        strides_for((2, 32, 5, 7), CHANNELS_LAST),
    )
    part = wide.slice((0, 8, 0, 0), shape, (1, 1, 1, 1))
    assert part.pixel_stride() == 32
    assert wide.slice((0, 0, 0, 0), (2, 32, 5, 6), (1, 1, 1, 1)).pixel_stride() is None


def test_attention_heads_and_their_return_are_views():
    heads = plain((1, 128, 768)).reshape((1, 128, 12, 64)).permute((0, 2, 1, 3))
    assert heads.shape == (1, 12, 128, 64) and heads.strides[1:] == (64, 768, 1)
    shape = (1, 12, 128, 64)
    result = Tensor(Buffer("arena", "t", 98304, "float32"), shape, strides_for(shape, (0, 2, 1, 3)))
    assert result.permute((0, 2, 1, 3)).reshape((1, 128, 768)).is_dense()


def test_channels_last_image_to_tokens_is_a_view():
    shape = (1, 16, 4, 6)
    image = Tensor(Buffer("arena", "t", 384, "float32"), shape, strides_for(shape, CHANNELS_LAST))
    tokens = image.reshape((1, 16, 24)).permute((0, 2, 1))
    assert tokens.is_dense() and tokens.shape == (1, 24, 16)
    assert image.reshape((1, 384)) is None
