// A number of bytes. Text form is binary units: "480MiB", "1.5GiB"; plain numbers are bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace omni {

class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}

  constexpr std::int64_t count() const { return count_; }
  constexpr double mebibytes() const { return static_cast<double>(count_) / (1 << 20); }

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) { return count_ += other.count_, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count_ -= other.count_, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }
  friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return Bytes(a.count_ * n); }
  friend constexpr Bytes operator/(Bytes a, std::int64_t n) { return Bytes(a.count_ / n); }

 private:
  std::int64_t count_ = 0;
};

constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n << 10));
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n << 20));
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n << 30));
}

// "480MiB", "480 MiB", "1.5GiB", "512KiB", "4096", "4096B". Decimal units (MB, GB) are refused with
// the binary one suggested, since half of the field means 2^20 by them.
Result<Bytes> parse_bytes(std::string_view text);
// Shortest exact-looking form with at most one decimal: "480 MiB", "1.5 GiB".
std::string to_string(Bytes bytes);

}  // namespace omni
