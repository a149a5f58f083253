// The character classes of RFC 9110 and 9112, as tables: every byte of every head passes them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace omni::http {

enum CharacterClass : std::uint8_t {
  kToken = 1,   // tchar: methods and field names
  kValue = 2,   // field values: visible, space, tab, obs-text
  kTarget = 4,  // request targets: visible ASCII without '#', which never goes over the wire
  kHost = 8,    // reg-name and address characters, without ',', so that two hosts cannot be joined
};

inline constexpr std::array<std::uint8_t, 256> kCharacterTable = [] {
  std::array<std::uint8_t, 256> table{};
  const auto mark = [&table](std::string_view characters, std::uint8_t bits) {
    for (char c : characters) table[static_cast<unsigned char>(c)] |= bits;
  };
  const std::string_view letters_and_digits =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  mark(letters_and_digits, kToken | kHost);
  mark("!#$%&'*+-.^_`|~", kToken);
  mark("-._~%!$&'()*+;=:[]", kHost);
  mark("\t ", kValue);
  for (int c = 0x21; c < 0x7f; ++c) table[static_cast<std::size_t>(c)] |= kValue | kTarget;
  table['#'] &= static_cast<std::uint8_t>(~kTarget);
  for (int c = 0x80; c < 0x100; ++c) table[static_cast<std::size_t>(c)] |= kValue;
  return table;
}();

constexpr bool is_class(char c, CharacterClass wanted) {
  return (kCharacterTable[static_cast<unsigned char>(c)] & wanted) != 0;
}
constexpr bool is_token_char(char c) { return is_class(c, kToken); }
constexpr bool is_value_char(char c) { return is_class(c, kValue); }
constexpr bool is_target_char(char c) { return is_class(c, kTarget); }
constexpr bool is_host_char(char c) { return is_class(c, kHost); }
constexpr bool is_space(char c) { return c == ' ' || c == '\t'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace omni::http
