// From a model's spec and what was provisioned for it to the exact process that is started. Pure
// but for choosing a free port.
#pragma once

#include <filesystem>
#include <optional>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "config/model_spec.h"
#include "config/node_config.h"
#include "provision/provisioner.h"
#include "supervisor/instance.h"

namespace omni::node {

struct LaunchContext {
  const NodePaths& paths;
  std::filesystem::path python_path;  // where the packages omni and omni_runtime lie
  std::optional<uid_t> uid;           // of the model, as root
  // What of CUDA's devices it may see: a number, or empty for none. Not set: the node manages none.
  std::optional<std::string> visible_gpus{};
  std::uint32_t log_number = 0;  // of this instance: no two that live write one file
};

// Fails when no port is free.
Result<LaunchPlan> make_launch_plan(const LaunchContext& context, const ModelSpec& spec,
                                    const Provisioned& provisioned, InstanceId instance);

// Devices by number: the host is 0, the first GPU 1.
inline constexpr DeviceId gpu_device(std::uint32_t number) { return DeviceId{number + 1}; }
inline constexpr std::uint32_t gpu_number(DeviceId device) {
  return static_cast<std::uint32_t>(device.value) - 1;
}

// <state>/cache/MODEL/VERSION: kept over restarts of one version, writable for the model.
std::filesystem::path cache_dir(const NodePaths& paths, const ModelSpec& spec,
                                const Provisioned& provisioned);
// <logs>/MODEL.log; of further instances beside it MODEL#2.log and so on ('#' is in no model's
// name).
std::filesystem::path log_file(const NodePaths& paths, std::string_view model,
                               std::uint32_t number = 0);

}  // namespace omni::node
