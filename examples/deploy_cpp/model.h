// A network that `byoc compile` wrote, in a C++ program: one Model, and a Runner for each thread.
//
//   Model model("model.so");
//   Runner run(model, threads);
//   ffi::Tensor x = NewTensor(model.inputs()[0]);  // fill static_cast<float*>(x.data_ptr())
//   ffi::Tensor y = run({x})[0];
//
// It needs no Python, and of TVM's Python packages three things: the headers of tvm_ffi and the
// libraries libtvm_ffi and libtvm_runtime.  A network that sorts, among few others, needs
// libtvm_runtime_extra as well (`byoc inspect` tells), which is loaded for it.  All errors are
// exceptions.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace ffi = tvm::ffi;

// What an input or an output is like.  The extent of a symbolic axis is -1.
struct TensorInfo {
  std::string name;
  ffi::Shape shape;
  DLDataType dtype;
};

// A tensor with room for its elements, not yet set.  TVM wants addresses aligned to 64 bytes.
inline ffi::Tensor NewTensor(const TensorInfo& info) {
  struct Memory {
    void AllocData(DLTensor* tensor) {
      tensor->data = aligned_alloc(64, ffi::GetDataSize(*tensor) / 64 * 64 + 64);
      if (tensor->data == nullptr) throw std::bad_alloc();
    }
    void FreeData(DLTensor* tensor) { free(tensor->data); }
  };
  for (int64_t extent : info.shape) {
    if (extent < 0) throw std::invalid_argument(info.name + " has a symbolic axis; set its extent");
  }
  return ffi::Tensor::FromNDAlloc(Memory(), info.shape, info.dtype, DLDevice{kDLCPU, 0});
}

// The linker puts this name at the beginning of a program: its own ELF header.
extern "C" __attribute__((visibility("hidden"))) const ElfW(Ehdr) __ehdr_start;

// Returns the absolute path of a library, and throws where it is for another architecture: there
// the dynamic linker would say that there is no such file.
inline std::string ForThisMachine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot load " + path + ": " + strerror(errno));
  ElfW(Ehdr) header = {};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    throw std::runtime_error("cannot load " + path + ": it is no ELF library");
  }
  if (header.e_machine != __ehdr_start.e_machine) {
    throw std::runtime_error("cannot load " + path + ": it is for another architecture than this" +
                             " program; compile the model with --target");
  }
  return std::filesystem::absolute(path).string();
}

// Loads one of TVM's other runtime libraries, from beside the program as its run path says, unless
// something has registered the functions that a network wants of it.
inline void RequireRuntime(const std::string& path, const ffi::json::Object& needed) {
  std::string name = needed["name"].cast<ffi::String>();
  for (const ffi::Any& item : needed["functions"].cast<ffi::json::Array>()) {
    auto function = item.cast<ffi::String>();
    if (ffi::Function::GetGlobal(function)) continue;
    if (dlopen((name + ".so").c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error("cannot load " + path + ": it needs " + name + ".so, " + dlerror());
    }
    if (!ffi::Function::GetGlobal(function)) {
      throw std::runtime_error("cannot load " + path + ": " + name + " lacks the function " +
                               std::string(function));
    }
  }
}

// A loaded library.  All threads use the same one, with one copy of the weights.
class Model {
 public:
  explicit Model(const std::string& path)
      : module_(ffi::Module::LoadFromFile(ForThisMachine(path))) {
    auto metadata = module_->GetFunction("byoc_metadata", /*query_imports=*/true);
    auto load = module_->GetFunction("vm_load_executable");
    if (!metadata || !load) {
      throw std::runtime_error("cannot load " + path + ": it is not what `byoc compile` writes");
    }
    load_executable_ = *load;
    // The JSON text that `byoc inspect --json` prints.
    auto text = (*metadata)().cast<ffi::String>();
    auto fields = ffi::json::Parse(text).cast<ffi::json::Object>();
    for (const ffi::Any& needed : fields["runtime"].cast<ffi::json::Array>()) {
      RequireRuntime(path, needed.cast<ffi::json::Object>());
    }
    inputs_ = Infos(fields["inputs"]);
    outputs_ = Infos(fields["outputs"]);
  }

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }

 private:
  friend class Runner;

  static std::vector<TensorInfo> Infos(const ffi::Any& list) {
    std::vector<TensorInfo> infos;
    for (const ffi::Any& item : list.cast<ffi::json::Array>()) {
      auto fields = item.cast<ffi::json::Object>();
      std::vector<int64_t> shape;
      for (const ffi::Any& extent : fields["shape"].cast<ffi::json::Array>()) {
        shape.push_back(extent.as<int64_t>().value_or(-1));
      }
      infos.push_back({fields["name"].cast<ffi::String>(), ffi::Shape(shape),
                       ffi::StringToDLDataType(fields["dtype"].cast<ffi::String>())});
    }
    return infos;
  }

  ffi::Module module_;
  ffi::Function load_executable_;
  std::vector<TensorInfo> inputs_, outputs_;
  std::mutex mutex_;  // TVM's modules may not be asked for functions by two threads at once
};

// Runs a model on one thread: make it on the thread that calls it.
class Runner {
 public:
  // Each thread that calls TVM has a pool of workers of its own, by TVM's default as many as half
  // the logical cores.  Here it has `threads`, the calling thread included.
  Runner(Model& model, int threads) {
    std::lock_guard<std::mutex> lock(model.mutex_);
    // TVM would tie threads to cores, the second ones of all pools to the same core.
    setenv("TVM_BIND_THREADS", "0", /*overwrite=*/0);
    // It would let workers spin for 0.15 s before they sleep, and the program's end wait for that.
    setenv("TVM_THREAD_POOL_SPIN_COUNT", "3000", /*overwrite=*/0);
    constexpr int kShareAllCores = -3;
    ffi::Array<ffi::String> cores;  // only their number matters, as threads are not tied to them
    for (int core = 0; core < threads; ++core) cores.push_back(std::to_string(core));
    ffi::Function::GetGlobalRequired("runtime.config_threadpool")(kShareAllCores, threads, cores);

    constexpr int kPooledAllocator = 2;
    machine_ = model.load_executable_();
    auto machine = machine_.cast<ffi::Module>();
    (*machine->GetFunction("vm_initialization"))(int{kDLCPU}, 0, kPooledAllocator);
    main_ = *machine->GetFunction("main");
  }

  // Takes tensors in the order of Model::inputs(), returns those of Model::outputs().
  std::vector<ffi::Tensor> operator()(const std::vector<ffi::Tensor>& inputs) {
    std::vector<ffi::AnyView> arguments(inputs.begin(), inputs.end());
    ffi::Any result;
    main_.CallPacked(arguments.data(), static_cast<int>(arguments.size()), &result);
    if (auto one = result.as<ffi::Tensor>()) return {*one};
    auto several = result.cast<ffi::Array<ffi::Tensor>>();
    return {several.begin(), several.end()};
  }

 private:
  ffi::Any machine_;
  ffi::Function main_;
};

// What main() does with an exception: one line on stderr, exit code 1.
inline int Failed(const std::exception& error) {
  std::string text = error.what();
  std::cerr << "error: " << text.substr(0, text.find('\n')) << '\n';
  return 1;
}
