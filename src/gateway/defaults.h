// The model's own defaults (request.defaults of model.toml): members that a request gets which does
// not have them. A model without any pays nothing.
#pragma once

#include <boost/json.hpp>

#include "gateway/body.h"
#include "gateway/json_body.h"
#include "routing/route_table.h"

namespace omni::gateway {

// Of the body that `scanner` scanned last, which `edit` is about.
void add_defaults(const ModelRoute& model, const JsonScanner& scanner, JsonEdit& edit);
void add_defaults(const ModelRoute& model, boost::json::object& parameters);
void add_defaults(const ModelRoute& model, Form& form);

}  // namespace omni::gateway
