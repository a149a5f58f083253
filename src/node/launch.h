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
};

// Fails when no port is free.
Result<LaunchPlan> make_launch_plan(const LaunchContext& context, const ModelSpec& spec,
                                    const Provisioned& provisioned, InstanceId instance);

// <state>/cache/MODEL/VERSION: kept over restarts of one version, writable for the model.
std::filesystem::path cache_dir(const NodePaths& paths, const ModelSpec& spec,
                                const Provisioned& provisioned);
std::filesystem::path log_file(const NodePaths& paths, std::string_view model);

}  // namespace omni::node
