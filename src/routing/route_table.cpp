#include "routing/route_table.h"

#include "base/text.h"

namespace omni {

std::string RouteTable::nearest(std::string_view name) const {
  std::vector<std::string_view> names;
  names.reserve(models.size());
  for (const auto& [known, model] : models) names.push_back(known);
  return nearest_name(name, names);
}

}  // namespace omni
