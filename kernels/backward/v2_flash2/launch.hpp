/// V2 backward's door: plain C++.
#pragma once

#include "kernels/params.hpp"

namespace fa::internal::v2_backward {

RejectBackward reject_backward;
BackwardWorkspace backward_workspace;
PrepareBackward prepare_backward;
LaunchBackward launch_backward;

}  // namespace fa::internal::v2_backward
