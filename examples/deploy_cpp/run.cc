// run [-n RUNS] [-t THREADS] MODEL.so INPUT... OUTPUT...: any network, from files to files.
//
// A file holds the elements of a tensor and nothing else, as numpy.tofile writes them.  Prints what
// loading took, and the first and the fastest run.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "model.h"

static double Milliseconds() {
  using std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

static ffi::Tensor Read(const std::string& path, const TensorInfo& info) {
  ffi::Tensor tensor = NewTensor(info);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path + ": " + strerror(errno));
  auto size = static_cast<std::streamsize>(ffi::GetDataSize(tensor));
  file.read(static_cast<char*>(tensor.data_ptr()), size);
  if (file.gcount() != size || file.peek() != EOF) {
    throw std::runtime_error(path + " does not have the " + std::to_string(size) + " bytes of " +
                             info.name);
  }
  return tensor;
}

static void Write(const std::string& path, const ffi::Tensor& tensor) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(tensor.data_ptr()), ffi::GetDataSize(tensor));
  if (!file.flush()) throw std::runtime_error("cannot write " + path + ": " + strerror(errno));
}

int main(int argc, char** argv) try {
  int runs = 1, threads = static_cast<int>(std::thread::hardware_concurrency());
  opterr = 0;
  for (int option; (option = getopt(argc, argv, "n:t:")) != -1;) {
    (option == 'n' ? runs : threads) = option == '?' ? 0 : atoi(optarg);
  }
  if (optind == argc || runs < 1 || threads < 1) {
    throw std::invalid_argument("usage: run [-n RUNS] [-t THREADS] MODEL.so INPUT... OUTPUT...");
  }
  double start = Milliseconds();
  Model model(argv[optind]);
  Runner run(model, threads);
  std::cout << "loaded in " << Milliseconds() - start << " ms\n";

  const std::vector<std::string> files(argv + optind + 1, argv + argc);
  if (files.size() != model.inputs().size() + model.outputs().size()) {
    throw std::invalid_argument(std::to_string(files.size()) + " files; the network has " +
                                std::to_string(model.inputs().size()) + " inputs and " +
                                std::to_string(model.outputs().size()) + " outputs");
  }
  auto file = files.begin();
  std::vector<ffi::Tensor> inputs, outputs;
  for (const TensorInfo& info : model.inputs()) inputs.push_back(Read(*file++, info));
  double first = 0, fastest = 0;
  for (int i = 0; i < runs; ++i) {
    start = Milliseconds();
    outputs = run(inputs);
    double took = Milliseconds() - start;
    if (i == 0) first = fastest = took;
    fastest = std::min(fastest, took);
  }
  std::cout << "first run " << first << " ms, fastest of " << runs << " " << fastest << " ms\n";
  for (const ffi::Tensor& output : outputs) Write(*file++, output);
  return 0;
} catch (const std::exception& error) { return Failed(error); }
