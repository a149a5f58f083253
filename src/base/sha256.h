// SHA-256: names things by their content, and keeps secrets as what they hash to.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace omni {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::string_view bytes);
  // With its length before it, so that no two lists of fields look the same.
  void field(std::string_view content);
  // Lower-case hex; ends the object's use.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view bytes);
std::string to_hex(std::span<const unsigned char> bytes);  // lower case

// Takes as long for any two of one length, so that an answer's time tells nothing.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// So many bytes that nobody can guess, in hex.
std::string random_hex(std::size_t bytes);

}  // namespace omni
