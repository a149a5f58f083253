// The streams of one command and what is known about the terminal behind them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "cli/cli.h"

namespace omni::cli {

class Console {
 public:
  explicit Console(Streams streams) : streams_(streams) {}

  bool input_is_terminal() const;
  bool output_is_terminal() const;
  // Columns of the terminal that shows the output; nothing when it goes elsewhere.
  std::optional<std::size_t> width() const;

  // Writes all of it. A signal during a blocked write or read is `cancelled`: only those that end
  // a command have handlers.
  Result<void> write(std::string_view text);
  Result<void> write_line(std::string_view text);
  // "omni: message" to the error stream. What cannot be written there has nowhere to go.
  void write_error(std::string_view message);
  // Input to its end.
  Result<std::string> read_input(Bytes limit);

  // Whoever read the output has left (`omni ps | head`): no error to report.
  bool output_closed() const { return output_closed_; }

 private:
  Streams streams_;
  bool output_closed_ = false;
};

// Writes all of it to any descriptor: zero, or the error number that stopped it.
int write_all(int fd, std::string_view data);
Error interrupted();

}  // namespace omni::cli
