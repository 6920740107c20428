// SPDX-License-Identifier: Apache-2.0
#include "reporter.hpp"

#include "channel.hpp"

namespace doctor {

void Reporter::step(std::string_view what) { send("step", what); }
void Reporter::add(const Finding &finding) { send("finding", finding.to_value()); }
void Reporter::add(const Route &route) { send("route", route.to_value()); }
void Reporter::failure(std::string_view reason) { send("failure", reason); }
void Reporter::end() { send("end", true); }

void Reporter::send(const char *kind, Value value) {
    send_message(fd_, Value::Object{{kind, std::move(value)}});
}

}  // namespace doctor
