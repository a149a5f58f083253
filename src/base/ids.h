// Ids: small integers that cannot be mixed up. They never leave the daemon but for InstanceId,
// whose text form names folders and logs.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace omni {

template <typename Tag>
struct Id {
  std::uint64_t value = 0;

  constexpr auto operator<=>(const Id&) const = default;
  constexpr explicit operator bool() const { return value != 0; }
};

using ModelId = Id<struct ModelTag>;        // one model of the catalogue, for the daemon's life
using InstanceId = Id<struct InstanceTag>;  // one start of one model; never reused
using TicketId = Id<struct TicketTag>;      // one request that waits for a lease
using DeviceId = Id<struct DeviceTag>;      // 0 is the host

inline constexpr DeviceId kHostDevice{0};

template <typename Tag>
std::string to_string(Id<Tag> id) {
  return std::to_string(id.value);
}

}  // namespace omni

template <typename Tag>
struct std::hash<omni::Id<Tag>> {
  std::size_t operator()(omni::Id<Tag> id) const noexcept {
    return std::hash<std::uint64_t>{}(id.value);
  }
};
