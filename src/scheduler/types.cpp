#include "scheduler/types.h"

#include <fmt/format.h>

namespace omni {
namespace {

struct Describe {
  std::string operator()(const StartInstance& action) const {
    return fmt::format("start i{} m{} {}", action.instance.value, action.model.value,
                       to_string(action.grant));
  }
  std::string operator()(const AbortStart& action) const {
    return fmt::format("abort i{}", action.instance.value);
  }
  std::string operator()(const CloseInstance& action) const {
    return fmt::format("close i{}", action.instance.value);
  }
  std::string operator()(const OpenInstance& action) const {
    return fmt::format("open i{}", action.instance.value);
  }
  std::string operator()(const StopInstance& action) const {
    return fmt::format("stop i{}", action.instance.value);
  }
  std::string operator()(const EvictInstance& action) const {
    return fmt::format("evict i{}", action.instance.value);
  }
  std::string operator()(const RestoreInstance& action) const {
    return fmt::format("restore i{} {}", action.instance.value, to_string(action.grant));
  }
  std::string operator()(const ServeTicket& action) const {
    return fmt::format("serve t{} i{}", action.ticket.value, action.instance.value);
  }
  std::string operator()(const RefuseTicket& action) const {
    return fmt::format("refuse t{} {}", action.ticket.value, action.error.info().name);
  }
};

}  // namespace

std::string_view to_string(InstanceState state) {
  constexpr std::string_view kNames[] = {"stopped",  "provisioning", "starting", "resident",
                                         "draining", "evicting",     "evicted",  "restoring",
                                         "asleep",   "waking",       "stopping", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string to_string(const Action& action) { return std::visit(Describe{}, action); }

}  // namespace omni
