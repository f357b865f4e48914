// Pictures as inputs of image networks.
#pragma once

#include <stdint.h>

#include "model.h"

// The network takes blue first, and numbers from -1 to 1, as it was trained.  Networks trained on
// ImageNet mostly take red first ({0, 1, 2}), means {0.485, 0.456, 0.406} and deviations
// {0.229, 0.224, 0.225}.
constexpr int kColours[3] = {2, 1, 0};
constexpr float kMean[3] = {0.5f, 0.5f, 0.5f};
constexpr float kDeviation[3] = {0.5f, 0.5f, 0.5f};

// Reads a binary PPM (P6, 8 bits per colour) of exactly the size of a network's input, float32
// [1, 3, height, width].
inline ffi::Tensor ReadPicture(const std::string& path, const TensorInfo& input) {
  const ffi::Shape& shape = input.shape;
  if (shape.size() != 4 || shape[0] != 1 || shape[1] != 3 ||
      input.dtype != DLDataType{kDLFloat, 32, 1}) {
    throw std::invalid_argument("input " + input.name + " is no picture, float32 [1, 3, h, w]");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path + ": " + strerror(errno));
  std::string magic;
  int64_t width = 0, height = 0, brightest = 0;
  file >> magic >> width >> height >> brightest;
  file.get();  // the one white space before the pixels
  if (!file || magic != "P6" || brightest != 255) {
    throw std::runtime_error("cannot read " + path + ": need a binary PPM of 8 bits per colour");
  }
  if (height != shape[2] || width != shape[3]) {
    throw std::runtime_error(path + " has " + std::to_string(width) + "x" + std::to_string(height) +
                             " pixels; the network takes " + std::to_string(shape[3]) + "x" +
                             std::to_string(shape[2]));
  }
  std::vector<uint8_t> pixels(3 * width * height);
  if (!file.read(reinterpret_cast<char*>(pixels.data()), pixels.size())) {
    throw std::runtime_error("cannot read " + path + ": it ends before its last pixel");
  }
  ffi::Tensor tensor = NewTensor(input);
  auto* to = static_cast<float*>(tensor.data_ptr());
  for (int colour = 0; colour < 3; ++colour) {
    for (int64_t i = 0; i < width * height; ++i) {
      float value = pixels[3 * i + kColours[colour]] / 255.0f;
      *to++ = (value - kMean[colour]) / kDeviation[colour];
    }
  }
  return tensor;
}
