// An RPC server for machines without Python: TVM's runtime library has all of it but the listening.
//
//   rpc_server FOLDER
//
// Listens on a free port of this machine, serves one client after the other, and keeps what they
// upload in FOLDER, whose name ends in a slash.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace tvm::runtime {
void RPCServerLoop(int socket);  // exported by libtvm_runtime, declared in no header of the wheel
}

namespace ffi = tvm::ffi;

constexpr int32_t kMagic = 0xFF271;

static void Define(const char* name, ffi::Function function) {
  ffi::Function::SetGlobal(name, function, true);
}

static bool Receive(int client, void* data, size_t size) {
  return recv(client, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

// The client says the magic number and a key, which is not looked at; so does the server.
static bool ShakeHands(int client) {
  int32_t magic, size;
  char key[256];
  if (!Receive(client, &magic, sizeof magic) || magic != kMagic) return false;
  if (!Receive(client, &size, sizeof size) || size < 0 || size > int{sizeof key}) return false;
  if (!Receive(client, key, size)) return false;
  const int32_t answer[] = {kMagic, 7};
  return send(client, answer, sizeof answer, 0) == sizeof answer &&
         send(client, "server:", 7, 0) == 7;
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const std::string folder = arguments[1];
  const auto place = [folder](const ffi::String& name) {
    return ffi::String(folder + std::string(name));
  };
  Define("tvm.rpc.server.workpath", ffi::Function::FromTyped(place));
  Define("tvm.rpc.server.load_module",
         ffi::Function::FromTyped([place](const ffi::String& name) -> ffi::Module {
           return ffi::Module::LoadFromFile(place(name));
         }));
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    perror("rpc_server");
    return 1;
  }
  printf("bind to 127.0.0.1:%d\n", ntohs(address.sin_port));
  fflush(stdout);
  for (;;) {
    const int client = accept(listener, nullptr, nullptr);
    if (client < 0) return 1;
    if (ShakeHands(client) && fork() == 0) {
      tvm::runtime::RPCServerLoop(client);
      _exit(0);
    }
    close(client);
    wait(nullptr);
  }
}
