// classify_threads MODEL.so THREADS ROUNDS PICTURE.ppm...: many threads, one loaded network.
//
// Each thread classifies all pictures ROUNDS times with a Runner of its own, and all answers must
// be those that one thread got before.  A Runner has one worker here: where there are requests for
// all cores, that gives more answers per second than several workers on one request.
#include <chrono>
#include <future>

#include "picture.h"

// The same pictures and answers for all threads.
struct Task {
  Model& model;
  size_t rounds;
  std::vector<ffi::Tensor> pictures, answers;
};

// One thread's part, from another picture on than the other threads.
static void Work(const Task& task, size_t first) {
  Runner run(task.model, 1);
  const size_t count = task.pictures.size();
  for (size_t i = first; i < first + task.rounds * count; ++i) {
    ffi::Tensor answer = run({task.pictures[i % count]})[0];
    const ffi::Tensor& known = task.answers[i % count];
    if (memcmp(answer.data_ptr(), known.data_ptr(), ffi::GetDataSize(known)) != 0) {
      throw std::runtime_error("thread " + std::to_string(first) + " got another answer");
    }
  }
}

static void Time(const Task& task, size_t threads) {
  auto start = std::chrono::steady_clock::now();
  std::vector<std::future<void>> workers;
  for (size_t i = 0; i < threads; ++i) {
    workers.push_back(std::async(std::launch::async, Work, std::cref(task), i));
  }
  for (auto& worker : workers) worker.get();  // throws what its thread threw
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << threads << (threads == 1 ? " thread: " : " threads: ")
            << threads * task.rounds * task.pictures.size() / seconds.count()
            << " pictures per second\n";
}

int main(int argc, char** argv) try {
  int threads = argc > 4 ? atoi(argv[2]) : 0, rounds = argc > 4 ? atoi(argv[3]) : 0;
  if (threads < 1 || rounds < 1) {
    throw std::invalid_argument("usage: classify_threads MODEL.so THREADS ROUNDS PICTURE.ppm...");
  }
  Model model(argv[1]);
  Runner run(model, 1);
  Task task{model, static_cast<size_t>(rounds), {}, {}};
  for (int i = 4; i < argc; ++i) {
    task.pictures.push_back(ReadPicture(argv[i], model.inputs().at(0)));
    task.answers.push_back(run({task.pictures.back()})[0]);
  }
  Time(task, 1);
  Time(task, threads);
  std::cout << "all answers are those of one thread\n";
  return 0;
} catch (const std::exception& error) { return Failed(error); }
