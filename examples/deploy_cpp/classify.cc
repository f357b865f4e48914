// classify MODEL.so PICTURE.ppm [LABELS.txt]: what a classifier sees in a picture.
//
// Prints the five most probable classes, by number or by the line of that number in LABELS.txt.
#include <algorithm>
#include <iomanip>
#include <numeric>
#include <thread>

#include "picture.h"

static std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": " + strerror(errno));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

int main(int argc, char** argv) try {
  if (argc != 3 && argc != 4) {
    throw std::invalid_argument("usage: classify MODEL.so PICTURE.ppm [LABELS.txt]");
  }
  Model model(argv[1]);
  ffi::Tensor picture = ReadPicture(argv[2], model.inputs().at(0));
  std::vector<std::string> labels;
  if (argc == 4) labels = ReadLines(argv[3]);

  Runner run(model, std::thread::hardware_concurrency());
  ffi::Tensor answer = run({picture})[0];

  if (answer.dtype() != DLDataType{kDLFloat, 32, 1}) {
    throw std::runtime_error("the answer of " + std::string(argv[1]) + " is not float32");
  }
  const auto* scores = static_cast<const float*>(answer.data_ptr());
  std::vector<size_t> classes(answer.numel());
  std::iota(classes.begin(), classes.end(), 0);
  size_t shown = std::min<size_t>(5, classes.size());
  std::partial_sort(classes.begin(), classes.begin() + shown, classes.end(),
                    [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  for (size_t i = 0; i < shown; ++i) {
    size_t number = classes[i];
    std::cout << std::fixed << std::setprecision(4) << scores[number] << "  "
              << (number < labels.size() ? labels[number] : std::to_string(number)) << '\n';
  }
  return 0;
} catch (const std::exception& error) { return Failed(error); }
