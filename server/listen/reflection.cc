#include "server/listen/reflection.h"

#include <memory>
#include <vector>

#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"

namespace counterweight::server {
namespace {

// The library gives its plugin to every builder of a process that is linked
// with it, so it has to be taken away again.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<const grpc::reflection::ProtoServerReflectionPlugin*>(
                 plugin.get()) != nullptr;
    });
  }
};

}  // namespace

void SetReflection(bool enabled, grpc::ServerBuilder* builder) {
  // Otherwise a static library could be left out.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  if (!enabled) builder->SetOption(std::make_unique<WithoutReflection>());
}

}  // namespace counterweight::server
