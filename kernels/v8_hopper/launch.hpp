/// V8's door: plain C++.
#pragma once

#include "kernels/params.hpp"

namespace fa::internal::v8 {

RejectForward reject_forward;
inline constexpr ForwardWorkspace* forward_workspace = no_workspace;
PrepareForward prepare_forward;
LaunchForward launch_forward;

}  // namespace fa::internal::v8
