// Result<T>: a value or an Error, and the four macros that pass an Error on.
//
//   TRY(Config config, load(path));      // in a function that returns Result
//   CHECK(write(path, text));            // the same for Result<void>
//   CO_TRY(...), CO_CHECK(...)           // in a coroutine
#pragma once

#include <cassert>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"

namespace omni {

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return assert(ok()), std::get<0>(state_); }
  const T& value() const& { return assert(ok()), std::get<0>(state_); }
  T&& value() && { return assert(ok()), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & { return assert(!ok()), std::get<1>(state_); }
  const Error& error() const& { return assert(!ok()), std::get<1>(state_); }
  Error&& error() && { return assert(!ok()), std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }

  Error& error() & { return assert(error_), *error_; }
  const Error& error() const& { return assert(error_), *error_; }
  Error&& error() && { return assert(error_), *std::move(error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace omni

#define OMNI_CONCAT_(a, b) a##b
#define OMNI_CONCAT(a, b) OMNI_CONCAT_(a, b)
#define OMNI_TRY_(ret, name, declaration, ...)                \
  auto name = (__VA_ARGS__);                                  \
  if (!name.ok()) ret ::omni::Error(std::move(name).error()); \
  declaration = std::move(name).value()
#define OMNI_CHECK_(ret, name, ...)                             \
  do {                                                          \
    auto name = (__VA_ARGS__);                                  \
    if (!name.ok()) ret ::omni::Error(std::move(name).error()); \
  } while (false)

#define TRY(declaration, ...) \
  OMNI_TRY_(return, OMNI_CONCAT(omni_result_, __LINE__), declaration, __VA_ARGS__)
#define CO_TRY(declaration, ...) \
  OMNI_TRY_(co_return, OMNI_CONCAT(omni_result_, __LINE__), declaration, __VA_ARGS__)
#define CHECK(...) OMNI_CHECK_(return, OMNI_CONCAT(omni_result_, __LINE__), __VA_ARGS__)
#define CO_CHECK(...) OMNI_CHECK_(co_return, OMNI_CONCAT(omni_result_, __LINE__), __VA_ARGS__)
