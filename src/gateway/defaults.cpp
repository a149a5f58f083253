#include "gateway/defaults.h"

namespace omni::gateway {

void add_defaults(const ModelRoute& model, const JsonScanner& scanner, JsonEdit& edit) {
  for (const auto& [name, value] : model.defaults) {
    if (!scanner.has_member(name)) edit.set(name, std::nullopt, value);
  }
}

void add_defaults(const ModelRoute& model, boost::json::object& parameters) {
  for (const auto& [name, value] : model.defaults) {
    if (!parameters.contains(name)) parameters.emplace(name, boost::json::parse(value));
  }
}

void add_defaults(const ModelRoute& model, Form& form) {
  for (const auto& [name, value] : model.defaults) {
    if (form.field(name) != nullptr || form.file(name) != nullptr) continue;
    const boost::json::value parsed = boost::json::parse(value);
    const auto* text = parsed.if_string();
    form.fields.emplace_back(name, text != nullptr ? std::string(*text) : value);
  }
}

}  // namespace omni::gateway
