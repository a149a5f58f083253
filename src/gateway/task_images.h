// Images for Python handlers: made from a prompt, or from another image. The handler gives one
// image's bytes, or yields several; the client gets OpenAI's list.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gateway/body.h"
#include "gateway/task_adapter.h"

namespace omni::gateway {

struct ImageOptions {
  std::size_t count = 1;  // `n`
  bool as_url = false;    // a data: URL instead of bare base64
};

// `prompt` is required, `n` and `size` are checked; `response_format` is the gateway's own.
Result<ImageOptions> normalise_image_generation(json::object& parameters);
// A form with `image` (or `image[]`): what the handler gets, numbers as numbers. The file parts
// that carry images get their plain names.
Result<ImageOptions> normalise_image_edit(Form& form, json::object& parameters);

std::unique_ptr<TaskAdapter> images_adapter(AnswerIdentity identity, ImageOptions options);

}  // namespace omni::gateway
