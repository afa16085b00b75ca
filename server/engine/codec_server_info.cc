#include "server/engine/codec_server_info.h"

#include <string>

#include "kernels/spec.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

void EncodeServerInfo(const kernels::BackendInfo& backend,
                      const RequestLimits& limits,
                      v1::GetServerInfoResponse* message) {
  message->set_numerics_version(kernels::kNumericsVersion);
  message->set_backend(backend.name);
  message->set_instruction_set(backend.instruction_set);
  message->set_threads(static_cast<uint32_t>(backend.threads));
  for (const kernels::DeviceInfo& device : backend.devices) {
    v1::Device* const added = message->add_devices();
    added->set_index(static_cast<uint32_t>(device.index));
    added->set_name(device.name);
    added->set_memory_bytes(device.memory_bytes);
    added->set_uuid(device.uuid.data(), device.uuid.size());
  }
  message->mutable_limits()->set_max_tokens(limits.max_tokens);
  message->mutable_limits()->set_max_sequences(limits.max_sequences);
  message->mutable_limits()->set_max_rules(kernels::kMaxRules);
  for (const Dialect& dialect : Dialects()) {
    message->add_dialects(std::string(dialect.system));
    v1::DialectReleases* const releases = message->add_dialect_releases();
    releases->set_system(std::string(dialect.system));
    for (const DatedRelease& each : dialect.releases) {
      v1::Release* const release = releases->add_releases();
      release->set_version(ToString(each.release));
      release->set_change(std::string(each.change));
    }
  }
  message->add_features("loss");
  message->add_features("policy_versions");
  message->add_features("diagnose");
}

}  // namespace counterweight::server
