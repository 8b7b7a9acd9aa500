#include "bench/baselines/cudnn_sdpa.hpp"

#if defined(__has_include)
#if __has_include(<cudnn_graph.h>) && __has_include(<cudnn_version.h>)
#include <cudnn_graph.h>
#include <cudnn_version.h>
#define FA_HAS_CUDNN_HEADERS 1
#endif
#endif

#include <algorithm>

#include "tests/support/layout.hpp"

namespace fa::bench {

CudnnShape shape_of(const test::Problem& problem) {
  CudnnShape shape;
  shape.dtype = problem.dtype;
  shape.B = problem.B;
  shape.H = problem.H;
  shape.Hk = problem.Hk;
  shape.M = problem.M;
  shape.N = problem.N;
  shape.D = problem.D;
  shape.Dv = problem.Dv;
  shape.mask = problem.mask;
  shape.scale = test::scale_of(problem);
  const test::PlacedProblem placed = test::place(problem);
  std::copy_n(placed.q.stride, 3, shape.q_stride);
  std::copy_n(placed.k.stride, 3, shape.k_stride);
  std::copy_n(placed.v.stride, 3, shape.v_stride);
  std::copy_n(placed.out.stride, 3, shape.out_stride);
  return shape;
}

}  // namespace fa::bench

#if defined(FA_HAS_CUDNN_HEADERS)

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace fa::bench {
namespace {

using Descriptor = cudnnBackendDescriptor_t;

// The single operation's names, by number: older headers lack them, and their numbers are part of the ABI.
constexpr auto kSdpaForward = static_cast<cudnnBackendDescriptorType_t>(41);
constexpr auto kSdpaForwardQ = static_cast<cudnnBackendAttributeName_t>(2800);
constexpr auto kSdpaForwardK = static_cast<cudnnBackendAttributeName_t>(2801);
constexpr auto kSdpaForwardV = static_cast<cudnnBackendAttributeName_t>(2802);
constexpr auto kSdpaForwardO = static_cast<cudnnBackendAttributeName_t>(2803);
constexpr auto kSdpaForwardStats = static_cast<cudnnBackendAttributeName_t>(2804);
constexpr auto kSdpaForwardScale = static_cast<cudnnBackendAttributeName_t>(2805);

/// The functions of libcudnn.so.9; `error` says why they are not there.
struct Api {
  std::string error;
  decltype(&::cudnnGetVersion) get_version = nullptr;
  decltype(&::cudnnGetErrorString) get_error_string = nullptr;
  decltype(&::cudnnGetLastErrorString) get_last_error_string = nullptr;
  decltype(&::cudnnCreate) create = nullptr;
  decltype(&::cudnnDestroy) destroy = nullptr;
  decltype(&::cudnnSetStream) set_stream = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&::cudnnBackendFinalize) finalize = nullptr;
  decltype(&::cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&::cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&::cudnnBackendExecute) execute = nullptr;

  Api() {
    void* library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* text = dlerror();
      error = std::string("cudnn: not found: ") + (text != nullptr ? text : "dlopen gives no reason");
      return;
    }
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && error.empty()) error = std::string("cudnn: libcudnn.so.9 lacks ") + name;
    };
    load(get_version, "cudnnGetVersion");
    load(get_error_string, "cudnnGetErrorString");
    load(get_last_error_string, "cudnnGetLastErrorString");
    load(create, "cudnnCreate");
    load(destroy, "cudnnDestroy");
    load(set_stream, "cudnnSetStream");
    load(create_descriptor, "cudnnBackendCreateDescriptor");
    load(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    load(finalize, "cudnnBackendFinalize");
    load(set_attribute, "cudnnBackendSetAttribute");
    load(get_attribute, "cudnnBackendGetAttribute");
    load(execute, "cudnnBackendExecute");
  }
};

const Api& api() {
  static const Api loaded;
  return loaded;
}

/// Throws with the status, its text, and what the library last had to say.
void check(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char last[2048] = "";
  api().get_last_error_string(last, sizeof last);
  throw std::runtime_error("cudnn: " + what + ": " + api().get_error_string(status) + " (status " +
                           std::to_string(static_cast<int>(status)) +
                           "); last error: " + (last[0] != 0 ? last : "none"));
}

void set(Descriptor descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::int64_t count, const void* values, const std::string& what) {
  check(api().set_attribute(descriptor, name, type, count, values),
        "set attribute " + std::to_string(static_cast<int>(name)) + " of " + what);
}

void link(Descriptor descriptor, cudnnBackendAttributeName_t name, Descriptor value,
          const std::string& what) {
  set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, what);
}

/// Descriptors, destroyed last made first.
class Descriptors {
 public:
  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (auto it = all_.rbegin(); it != all_.rend(); ++it) api().destroy_descriptor(*it);
  }

  Descriptor make(cudnnBackendDescriptorType_t type, const std::string& what) {
    Descriptor descriptor = nullptr;
    check(api().create_descriptor(type, &descriptor), "create " + what);
    all_.push_back(descriptor);
    return descriptor;
  }

 private:
  std::vector<Descriptor> all_;
};

using Four = std::array<std::int64_t, 4>;

Four contiguous(const Four& size) {
  return {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
}

struct Value {
  Descriptor descriptor;
  Four size;
};

/// Operations on tensors, and the host's numbers among their inputs.
class Operations {
 public:
  struct Constant {
    std::int64_t uid;
    alignas(16) unsigned char bytes[16];
  };

  Descriptors descriptors;
  std::vector<Descriptor> operations;
  std::deque<Constant> constants;  // a deque: their addresses stay

  /// A tensor of the caller's memory; uid is how run() names it.
  Value memory(std::int64_t uid, cudnnDataType_t type, const Four& size, const Four& stride,
               const std::string& what) {
    return tensor(uid, type, size, stride, false, false, what);
  }

  /// A tensor that exists between two operations only.
  Value between(cudnnDataType_t type, const Four& size, const std::string& what) {
    return tensor(next_uid_++, type, size, contiguous(size), true, false, what);
  }

  Value constant(float x) { return constant(CUDNN_DATA_FLOAT, &x, sizeof x, "a float constant"); }
  Value constant(std::int32_t x) { return constant(CUDNN_DATA_INT32, &x, sizeof x, "an int32 constant"); }

  void matmul(const Value& a, const Value& b, const Value& c, const std::string& what) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const Descriptor product = descriptors.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    set(product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    check(api().finalize(product), "finalize matmul of " + what);
    const Descriptor operation = descriptors.make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    link(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor, what);
    link(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor, what);
    link(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor, what);
    link(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, product, what);
    add(operation, what);
  }

  /// y = mode(x), mode(x, b) or mode(x, b, t); axis is GEN_INDEX's.
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute, const Value& x, const Value* b,
                 const Value* t, const Value& y, std::int64_t axis, const std::string& what) {
    const Descriptor function = descriptors.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    set(function, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, what);
    set(function, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    if (axis >= 0) set(function, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis, what);
    check(api().finalize(function), "finalize pointwise of " + what);
    const Descriptor operation = descriptors.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    link(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function, what);
    link(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor, what);
    if (b != nullptr) link(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor, what);
    if (t != nullptr) link(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->descriptor, what);
    link(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor, what);
    add(operation, what);
  }

  /// The same in fp32, into a new tensor.
  Value pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value* b, const std::string& what) {
    const Value y = between(CUDNN_DATA_FLOAT, x.size, what);
    pointwise(mode, CUDNN_DATA_FLOAT, x, b, nullptr, y, -1, what);
    return y;
  }

  /// Over the dimensions where y has size 1, or fewer.
  void reduce(cudnnReduceTensorOp_t mode, const Value& x, const Value& y, const std::string& what) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const Descriptor function = descriptors.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    set(function, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode, what);
    set(function, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute, what);
    check(api().finalize(function), "finalize reduction of " + what);
    const Descriptor operation = descriptors.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    link(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor, what);
    link(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor, what);
    link(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, function, what);
    add(operation, what);
  }

  /// y: the same elements as x, in another order of dimensions.
  void reshape(const Value& x, const Value& y, const std::string& what) {
    const Descriptor operation = descriptors.make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    link(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor, what);
    link(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor, what);
    add(operation, what);
  }

  /// x, its last two dimensions exchanged; x's strides are `stride`.
  Value transposed(cudnnDataType_t type, const Value& x, const Four& stride, const std::string& what) {
    const Value y = tensor(next_uid_++, type, {x.size[0], x.size[1], x.size[3], x.size[2]},
                           {stride[0], stride[1], stride[3], stride[2]}, true, false, what);
    reshape(x, y, what);
    return y;
  }

  void add(Descriptor operation, const std::string& what) {
    check(api().finalize(operation), "finalize operation " + what);
    operations.push_back(operation);
  }

 private:
  Value constant(cudnnDataType_t type, const void* x, std::size_t bytes, const std::string& what) {
    Constant& held = constants.emplace_back();
    held.uid = next_uid_++;
    std::memcpy(held.bytes, x, bytes);
    return tensor(held.uid, type, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true, what);
  }

  Value tensor(std::int64_t uid, cudnnDataType_t type, const Four& size, const Four& stride, bool is_virtual,
               bool is_by_value, const std::string& what) {
    const std::int64_t alignment = 16;
    const std::string text = "tensor " + what;
    const Descriptor descriptor = descriptors.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, text);
    set(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, text);
    set(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, text);
    set(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size.data(), text);
    set(descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride.data(), text);
    set(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, text);
    if (is_virtual) set(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual, text);
    if (is_by_value)
      set(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value, text);
    check(api().finalize(descriptor), "finalize " + text);
    return {descriptor, size};
  }

  std::int64_t next_uid_ = 1000;
};

// What run() names its tensors by.
enum Uid : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStats,
  // Of the backward pass.
  kDout,
  kDq,
  kDk,
  kDv,
  kSums,
  kDelta,
};

cudnnDataType_t data_type(Dtype dtype) {
  return dtype == Dtype::float16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

bool is_causal(const CudnnShape& shape) {
  return shape.mask.left < 0 && shape.mask.right == 0;
}

/// Empty, or why cuDNN is not asked at all.
std::string reject(const CudnnShape& shape) {
  if (shape.dtype != Dtype::float16 && shape.dtype != Dtype::bfloat16)
    return "cudnn: takes float16 and bfloat16, but this is " + std::string(name_of(shape.dtype));
  if (shape.B < 1 || shape.H < 1 || shape.Hk < 1 || shape.M < 1 || shape.N < 1)
    return "cudnn: no size may be 0";
  if (shape.D % 8 != 0 || shape.Dv % 8 != 0)
    return "cudnn: head dimensions must be multiples of 8, but D = " + std::to_string(shape.D) +
           " and Dv = " + std::to_string(shape.Dv);
  const bool full = shape.mask.left < 0 && shape.mask.right < 0;
  if (!full && !is_causal(shape)) return "cudnn: this baseline has full and causal masks only";
  if (is_causal(shape) && shape.mask.alignment == Alignment::bottom_right && shape.M > shape.N)
    return "cudnn: bottom-right causal needs M <= N, but M = " + std::to_string(shape.M) +
           " and N = " + std::to_string(shape.N);
  return {};
}

/// Scores of keys that a query does not see become the lowest float.
Value causal(Operations& ops, const CudnnShape& shape, const Value& scores) {
  Value row = ops.between(CUDNN_DATA_INT32, scores.size, "row index");
  ops.pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, scores, nullptr, nullptr, row, 2, "row index");
  const Value column = ops.between(CUDNN_DATA_INT32, scores.size, "column index");
  ops.pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, scores, nullptr, nullptr, column, 3,
                "column index");
  if (shape.mask.alignment == Alignment::bottom_right && shape.M != shape.N) {
    const Value keys = ops.constant(static_cast<std::int32_t>(shape.N));
    const Value plus = ops.between(CUDNN_DATA_INT32, scores.size, "row + N");
    ops.pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, row, &keys, nullptr, plus, -1, "row + N");
    const Value queries = ops.constant(static_cast<std::int32_t>(shape.M));
    const Value minus = ops.between(CUDNN_DATA_INT32, scores.size, "row + N - M");
    ops.pointwise(CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32, plus, &queries, nullptr, minus, -1, "row + N - M");
    row = minus;
  }
  const Value visible = ops.between(CUDNN_DATA_BOOLEAN, scores.size, "row >= column");
  ops.pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, &column, nullptr, visible, -1,
                "row >= column");
  const Value hidden = ops.constant(std::numeric_limits<float>::lowest());
  const Value masked = ops.between(CUDNN_DATA_FLOAT, scores.size, "masked scores");
  ops.pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, scores, &hidden, &visible, masked, -1,
                "masked scores");
  return masked;
}

Four strides(const std::int64_t (&stride)[3]) {
  return {stride[0], stride[1], stride[2], 1};
}

/// K, or V, as the products take it: [B, Hk, width, N], its memory [B, Hk, N, width].
Value transposed_memory(Operations& ops, const CudnnShape& shape, std::int64_t uid, std::int64_t width,
                        const std::int64_t (&stride)[3], const std::string& what) {
  return ops.memory(uid, data_type(shape.dtype), {shape.B, shape.Hk, width, shape.N},
                    {stride[0], stride[1], 1, stride[2]}, what);
}

/// The graph of cuDNN's own C++ front end (github.com/NVIDIA/cudnn-frontend, node/scaled_dot_product_*):
/// its engines recognise this sequence and fuse it. Without the stats chain, read or not, none takes it.
void forward_graph(Operations& ops, const CudnnShape& shape, bool with_stats) {
  const cudnnDataType_t type = data_type(shape.dtype);
  const Four scores_size = {shape.B, shape.H, shape.M, shape.N};
  const Four row_size = {shape.B, shape.H, shape.M, 1};
  const Value q = ops.memory(kQ, type, {shape.B, shape.H, shape.M, shape.D}, strides(shape.q_stride), "q");
  const Value kt = transposed_memory(ops, shape, kK, shape.D, shape.k_stride, "k, transposed");
  const Value product = ops.between(CUDNN_DATA_FLOAT, scores_size, "q k^T");
  ops.matmul(q, kt, product, "q k^T");
  const Value scale = ops.constant(shape.scale);
  Value scores = ops.pointwise(CUDNN_POINTWISE_MUL, product, &scale, "scale");
  if (is_causal(shape)) scores = causal(ops, shape, scores);

  const Value row_max = ops.between(CUDNN_DATA_FLOAT, row_size, "row max");
  ops.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, row_max, "row max");
  const Value shifted = ops.pointwise(CUDNN_POINTWISE_SUB, scores, &row_max, "scores - max");
  const Value exponentials = ops.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, "exp");
  const Value row_sum = ops.between(CUDNN_DATA_FLOAT, row_size, "row sum");
  ops.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, row_sum, "row sum");
  const Value logarithm = ops.pointwise(CUDNN_POINTWISE_LOG, row_sum, nullptr, "log");
  const Value stats = with_stats
                          ? ops.memory(kStats, CUDNN_DATA_FLOAT, row_size, contiguous(row_size), "stats")
                          : ops.between(CUDNN_DATA_FLOAT, row_size, "stats");
  ops.pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, row_max, &logarithm, nullptr, stats, -1, "stats");
  const Value probabilities = ops.between(type, scores_size, "probabilities");
  ops.pointwise(CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, exponentials, &row_sum, nullptr, probabilities, -1,
                "probabilities");
  const Value v = ops.memory(kV, type, {shape.B, shape.Hk, shape.N, shape.Dv}, strides(shape.v_stride), "v");
  const Value out =
      ops.memory(kOut, type, {shape.B, shape.H, shape.M, shape.Dv}, strides(shape.out_stride), "out");
  ops.matmul(probabilities, v, out, "p v");
}

/// One SDPA_FWD operation. Here k is not transposed.
void forward_operation(Operations& ops, const CudnnShape& shape, bool with_stats) {
  const cudnnDataType_t type = data_type(shape.dtype);
  const Four row_size = {shape.B, shape.H, shape.M, 1};
  const std::string what = "SDPA_FWD";
  const Descriptor operation = ops.descriptors.make(kSdpaForward, what);
  link(operation, kSdpaForwardQ,
       ops.memory(kQ, type, {shape.B, shape.H, shape.M, shape.D}, strides(shape.q_stride), "q").descriptor,
       what);
  link(operation, kSdpaForwardK,
       ops.memory(kK, type, {shape.B, shape.Hk, shape.N, shape.D}, strides(shape.k_stride), "k").descriptor,
       what);
  link(operation, kSdpaForwardV,
       ops.memory(kV, type, {shape.B, shape.Hk, shape.N, shape.Dv}, strides(shape.v_stride), "v").descriptor,
       what);
  link(operation, kSdpaForwardO,
       ops.memory(kOut, type, {shape.B, shape.H, shape.M, shape.Dv}, strides(shape.out_stride), "out")
           .descriptor,
       what);
  if (with_stats) {
    link(operation, kSdpaForwardStats,
         ops.memory(kStats, CUDNN_DATA_FLOAT, row_size, contiguous(row_size), "stats").descriptor, what);
  }
  link(operation, kSdpaForwardScale, ops.constant(shape.scale).descriptor, what);
  ops.add(operation, what);
}

/// gradient [B, Hk, N, width] = scores^T rows, scores^T [B, H, N, M] and rows [B, H, M, width]: with grouped
/// heads the sum over the query heads of a key head.
void key_gradient(Operations& ops, const CudnnShape& shape, const Value& scores_transposed, const Value& rows,
                  const Value& gradient, const std::string& what) {
  if (shape.H == shape.Hk) return ops.matmul(scores_transposed, rows, gradient, what);
  const Value per_head = ops.between(data_type(shape.dtype), {shape.B, shape.H, shape.N, rows.size[3]},
                                     what + " per query head");
  ops.matmul(scores_transposed, rows, per_head, what + " per query head");
  ops.reduce(CUDNN_REDUCE_TENSOR_ADD, per_head, gradient, what);
}

/// The same front end's backward graph, tensor for tensor, since engines know it by its shape: delta and dq's
/// sums lie in memory, the scores nowhere.
void backward_graph(Operations& ops, const CudnnShape& shape) {
  const cudnnDataType_t type = data_type(shape.dtype);
  const Four q_size = {shape.B, shape.H, shape.M, shape.D}, k_size = {shape.B, shape.Hk, shape.N, shape.D};
  const Four out_size = {shape.B, shape.H, shape.M, shape.Dv},
             v_size = {shape.B, shape.Hk, shape.N, shape.Dv};
  const Four scores_size = {shape.B, shape.H, shape.M, shape.N}, row_size = {shape.B, shape.H, shape.M, 1};
  const Value q = ops.memory(kQ, type, q_size, strides(shape.q_stride), "q");
  const Value kt = transposed_memory(ops, shape, kK, shape.D, shape.k_stride, "k, transposed");
  const Value vt = transposed_memory(ops, shape, kV, shape.Dv, shape.v_stride, "v, transposed");
  const Value out = ops.memory(kOut, type, out_size, strides(shape.out_stride), "out");
  const Value dout = ops.memory(kDout, type, out_size, strides(shape.out_stride), "dout");
  const Value stats = ops.memory(kStats, CUDNN_DATA_FLOAT, row_size, contiguous(row_size), "stats");
  const Value scale = ops.constant(shape.scale);
  const Value one = ops.constant(1.0f);  // in the place of a dropout's scale

  // delta = rowsum(dO o O)
  const Value products = ops.pointwise(CUDNN_POINTWISE_MUL, dout, &out, "dO o O");
  const Value sums = ops.between(CUDNN_DATA_FLOAT, row_size, "rowsum(dO o O)");
  ops.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums, "rowsum(dO o O)");
  const Value delta = ops.memory(kDelta, CUDNN_DATA_FLOAT, row_size, contiguous(row_size), "delta");
  ops.pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, sums, &one, nullptr, delta, -1, "delta");

  // P = exp(scale Q K^T - LSE), masked; dV = P^T dO
  const Value product = ops.between(CUDNN_DATA_FLOAT, scores_size, "q k^T");
  ops.matmul(q, kt, product, "q k^T");
  const Value scaled = ops.pointwise(CUDNN_POINTWISE_MUL, product, &scale, "scale");
  Value shifted = ops.pointwise(CUDNN_POINTWISE_SUB, scaled, &stats, "scores - stats");
  if (is_causal(shape)) shifted = causal(ops, shape, shifted);
  const Value p = ops.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, "P");
  const Value pt = ops.transposed(type, p, contiguous(scores_size), "P^T");
  const Value dv = ops.memory(kDv, type, v_size, strides(shape.v_stride), "dv");
  key_gradient(ops, shape, pt, dout, dv, "P^T dO");

  // dS = scale P o (dO V^T - delta), in fp32; dK = dS^T Q
  const Value dp = ops.between(CUDNN_DATA_FLOAT, scores_size, "dO V^T");
  ops.matmul(dout, vt, dp, "dO V^T");
  const Value centred = ops.pointwise(CUDNN_POINTWISE_SUB, dp, &delta, "dP - delta");
  const Value weighted = ops.pointwise(CUDNN_POINTWISE_MUL, centred, &p, "P o (dP - delta)");
  const Value ds = ops.pointwise(CUDNN_POINTWISE_MUL, weighted, &scale, "dS");
  const Value dst = ops.transposed(type, ds, contiguous(scores_size), "dS^T");
  const Value dk = ops.memory(kDk, type, k_size, strides(shape.k_stride), "dk");
  key_gradient(ops, shape, dst, q, dk, "dS^T Q");

  // dQ = dS K, summed in fp32
  const Value k =
      ops.transposed(CUDNN_DATA_FLOAT, kt, {shape.k_stride[0], shape.k_stride[1], 1, shape.k_stride[2]}, "k");
  const Value dq_sums = ops.memory(kSums, CUDNN_DATA_FLOAT, q_size, contiguous(q_size), "dq's sums");
  ops.matmul(ds, k, dq_sums, "dS K");
  const Value dq = ops.memory(kDq, type, q_size, strides(shape.q_stride), "dq");
  ops.pointwise(CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, dq_sums, nullptr, nullptr, dq, -1, "dq");
}

/// Empty, or why cuDNN is not asked for gradients. Both limits are its front end's: below 9.6 dq's sums had
/// to be cleared by the caller, and up to 9.15 other numbers of keys need a padding mask.
std::string reject_backward(const CudnnShape& shape) {
  const std::size_t version = api().get_version();
  if (version < 90600) return "cudnn: backward needs cuDNN 9.6";
  if (version <= 91500 && shape.N % 128 != 0)
    return "cudnn: backward before cuDNN 9.15.1 needs keys in multiples of 128, but N = " +
           std::to_string(shape.N);
  return {};
}

}  // namespace

/// A finalised execution plan with all that it holds on to.
class CudnnPlan {
 public:
  struct Binding {
    std::int64_t uid;
    const void* pointer;
  };

  CudnnPlan() { check(api().create(&handle_.handle), "cudnnCreate"); }
  CudnnPlan(const CudnnPlan&) = delete;
  CudnnPlan& operator=(const CudnnPlan&) = delete;
  ~CudnnPlan() {
    for (const auto& [pointers, pack] : packs_) api().destroy_descriptor(pack);
  }

 private:
  struct Handle {
    cudnnHandle_t handle = nullptr;
    ~Handle() {
      if (handle != nullptr) api().destroy(handle);
    }
  };
  Handle handle_;  // before operations: it outlives their descriptors

 public:
  Operations operations;

  /// Throws where no engine configuration finalises; the text has every refusal.
  void finish(const std::string& route) {
    const Descriptor graph =
        operations.descriptors.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph");
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        static_cast<std::int64_t>(operations.operations.size()), operations.operations.data(), "the graph");
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_.handle, "the graph");
    check(api().finalize(graph), "finalize the graph");

    std::string refusals;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      const std::string mode_name = mode == CUDNN_HEUR_MODE_A ? "A" : "fallback";
      try {
        if (try_mode(graph, mode, route + ", heuristics " + mode_name, &refusals)) return;
      } catch (const std::runtime_error& error) {
        refusals += "\n    heuristics " + mode_name + ": " + error.what();
      }
    }
    throw std::runtime_error("no engine" + refusals);
  }

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  const std::string& engine() const { return engine_; }

  void run(const std::vector<Binding>& bindings, void* workspace, CUstream_st* stream) {
    check(api().set_stream(handle_.handle, stream), "cudnnSetStream");
    std::vector<void*> pointers;
    std::vector<std::int64_t> uids;
    for (const Binding& binding : bindings) {
      uids.push_back(binding.uid);
      pointers.push_back(const_cast<void*>(binding.pointer));
    }
    for (Operations::Constant& constant : operations.constants) {
      uids.push_back(constant.uid);
      pointers.push_back(constant.bytes);
    }
    pointers.push_back(workspace);
    check(api().execute(handle_.handle, plan_, pack(uids, pointers)), "execute (" + engine_ + ")");
  }

 private:
  bool try_mode(Descriptor graph, cudnnBackendHeurMode_t mode, const std::string& name,
                std::string* refusals) {
    Descriptors& descriptors = operations.descriptors;
    const Descriptor heuristics = descriptors.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, name);
    link(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, name);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, name);
    check(api().finalize(heuristics), "finalize");
    std::int64_t count = 0;
    check(api().get_attribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                              &count, nullptr),
          "count of results");
    std::vector<Descriptor> configurations;
    for (std::int64_t i = 0; i < count; ++i)
      configurations.push_back(descriptors.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, name));
    if (count > 0) {
      check(api().get_attribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                count, &count, configurations.data()),
            "results");
    }
    if (count == 0) {
      *refusals +=
          "\n    " + name + ": no engine takes it (CUDNN_LOGLEVEL_DBG=3 CUDNN_LOGDEST_DBG=stderr says why)";
      return false;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const Descriptor configuration = configurations[static_cast<std::size_t>(i)];
      const std::string which = name + ", configuration " + std::to_string(i + 1) + " of " +
                                std::to_string(count) + ", engine " + engine_number(configuration);
      try {
        const Descriptor plan = descriptors.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_.handle, "plan");
        link(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration, "plan");
        check(api().finalize(plan), "finalize");
        std::int64_t bytes = 0, got = 0;
        check(api().get_attribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                                  &bytes),
              "workspace size");
        plan_ = plan;
        workspace_bytes_ = static_cast<std::size_t>(bytes);
        engine_ = which;
        return true;
      } catch (const std::runtime_error& error) {
        *refusals += "\n    " + which + ": " + error.what();
      }
    }
    return false;
  }

  /// For the report alone; "?" where the library does not say.
  std::string engine_number(Descriptor configuration) {
    Descriptor engine = nullptr;
    if (api().create_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return "?";
    std::int64_t number = -1, got = 0;
    const bool said =
        api().get_attribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                            &got, &engine) == CUDNN_STATUS_SUCCESS &&
        api().get_attribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got, &number) ==
            CUDNN_STATUS_SUCCESS;
    api().destroy_descriptor(engine);
    return said ? std::to_string(number) : "?";
  }

  /// The finalised variant pack of these pointers, the workspace last; made at their first call, so that
  /// inputs that rotate cost no later call one. A pack that fails to finalise is not kept.
  Descriptor pack(const std::vector<std::int64_t>& uids, const std::vector<void*>& pointers) {
    if (const auto found = packs_.find(pointers); found != packs_.end()) return found->second;
    Descriptor made = nullptr;
    check(api().create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &made), "create variant pack");
    try {
      const auto count = static_cast<std::int64_t>(uids.size());
      set(made, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data(),
          "variant pack, ids");
      set(made, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data(),
          "variant pack, pointers");
      set(made, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &pointers.back(),
          "variant pack, workspace");
      check(api().finalize(made), "finalize variant pack");
      packs_.emplace(pointers, made);
    } catch (...) {
      api().destroy_descriptor(made);
      throw;
    }
    return made;
  }

  Descriptor plan_ = nullptr;  // owned by operations.descriptors
  std::size_t workspace_bytes_ = 0;
  std::string engine_;
  std::map<std::vector<void*>, Descriptor> packs_;  // by their pointers, the workspace last
};

namespace {

/// Null where it does not finish; texts then gains the reason.
template <class Build>
std::unique_ptr<CudnnPlan> try_route(const std::string& name, const Build& build, std::string* texts) {
  try {
    auto plan = std::make_unique<CudnnPlan>();
    build(plan->operations);
    plan->finish(name);
    return plan;
  } catch (const std::runtime_error& error) {
    *texts += (texts->empty() ? "" : "\n  ") + name + ": " + error.what();
    return nullptr;
  }
}

/// The products, mask and softmax as one fusible graph, which is what PyTorch's scaled_dot_product_attention
/// does; else one SDPA_FWD operation (cuDNN >= 9.13), which up to 9.20 has no mask.
std::unique_ptr<CudnnPlan> forward_plan(const CudnnShape& shape, bool with_stats, std::string* texts) {
  std::unique_ptr<CudnnPlan> plan = try_route(
      "graph", [&](Operations& ops) { forward_graph(ops, shape, with_stats); }, texts);
  if (plan != nullptr) return plan;
  if (is_causal(shape)) {
    *texts += std::string(texts->empty() ? "" : "\n  ") + "operation: has no mask before cuDNN 9.21";
    return nullptr;
  }
  return try_route(
      "operation", [&](Operations& ops) { forward_operation(ops, shape, with_stats); }, texts);
}

/// Empty, or why no plan is tried.
std::string why_not_asked(const CudnnShape& shape) {
  return !api().error.empty() ? api().error : reject(shape);
}

}  // namespace

std::string cudnn_version(std::string* why_not) {
  if (!api().error.empty()) {
    if (why_not != nullptr) *why_not = api().error;
    return {};
  }
  const std::size_t version = api().get_version();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

CudnnSdpa::CudnnSdpa(std::unique_ptr<CudnnPlan> plan) : plan_(std::move(plan)) {}
CudnnSdpa::~CudnnSdpa() = default;

std::unique_ptr<CudnnSdpa> CudnnSdpa::create(const CudnnShape& shape, bool with_stats, std::string* why_not) {
  std::string texts = why_not_asked(shape);
  auto plan = texts.empty() ? forward_plan(shape, with_stats, &texts) : nullptr;
  if (plan == nullptr) {
    if (why_not != nullptr) *why_not = texts;
    return nullptr;
  }
  return std::unique_ptr<CudnnSdpa>(new CudnnSdpa(std::move(plan)));
}

std::size_t CudnnSdpa::workspace_bytes() const {
  return plan_->workspace_bytes();
}
const std::string& CudnnSdpa::engine() const {
  return plan_->engine();
}

void CudnnSdpa::run(const void* q, const void* k, const void* v, void* out, float* stats, void* workspace,
                    CUstream_st* stream) {
  std::vector<CudnnPlan::Binding> bindings = {{kQ, q}, {kK, k}, {kV, v}, {kOut, out}};
  if (stats != nullptr) bindings.push_back({kStats, stats});
  plan_->run(bindings, workspace, stream);
}

CudnnSdpaBackward::CudnnSdpaBackward(std::unique_ptr<CudnnPlan> plan, const CudnnShape& shape)
    : plan_(std::move(plan)) {
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto rows = static_cast<std::size_t>(shape.B * shape.H * shape.M);
  sums_bytes_ = aligned(rows * static_cast<std::size_t>(shape.D) * sizeof(float));
  delta_bytes_ = aligned(rows * sizeof(float));
}
CudnnSdpaBackward::~CudnnSdpaBackward() = default;

std::unique_ptr<CudnnSdpaBackward> CudnnSdpaBackward::create(const CudnnShape& shape, std::string* why_not) {
  std::string texts = why_not_asked(shape);
  if (texts.empty()) texts = reject_backward(shape);
  auto plan = !texts.empty()
                  ? nullptr
                  : try_route(
                        "backward graph", [&](Operations& ops) { backward_graph(ops, shape); }, &texts);
  if (plan == nullptr) {
    if (why_not != nullptr) *why_not = texts;
    return nullptr;
  }
  return std::unique_ptr<CudnnSdpaBackward>(new CudnnSdpaBackward(std::move(plan), shape));
}

std::size_t CudnnSdpaBackward::workspace_bytes() const {
  return sums_bytes_ + delta_bytes_ + plan_->workspace_bytes();
}
const std::string& CudnnSdpaBackward::engine() const {
  return plan_->engine();
}

void CudnnSdpaBackward::run(const void* q, const void* k, const void* v, const void* out, const float* stats,
                            const void* dout, void* dq, void* dk, void* dv, void* workspace,
                            CUstream_st* stream) {
  std::byte* const sums = static_cast<std::byte*>(workspace);
  std::byte* const delta = sums + sums_bytes_;
  plan_->run({{kQ, q},
              {kK, k},
              {kV, v},
              {kOut, out},
              {kStats, stats},
              {kDout, dout},
              {kDq, dq},
              {kDk, dk},
              {kDv, dv},
              {kSums, sums},
              {kDelta, delta}},
             delta + delta_bytes_, stream);
}

}  // namespace fa::bench

#else  // no cuDNN headers

namespace fa::bench {
namespace {

constexpr const char* kNoHeaders = "cudnn: built without cuDNN's headers";

}  // namespace

class CudnnPlan {};

std::string cudnn_version(std::string* why_not) {
  if (why_not != nullptr) *why_not = kNoHeaders;
  return {};
}

CudnnSdpa::CudnnSdpa(std::unique_ptr<CudnnPlan> plan) : plan_(std::move(plan)) {}
CudnnSdpa::~CudnnSdpa() = default;
std::unique_ptr<CudnnSdpa> CudnnSdpa::create(const CudnnShape&, bool, std::string* why_not) {
  if (why_not != nullptr) *why_not = kNoHeaders;
  return nullptr;
}
std::size_t CudnnSdpa::workspace_bytes() const {
  return 0;
}
const std::string& CudnnSdpa::engine() const {
  static const std::string none;
  return none;
}
void CudnnSdpa::run(const void*, const void*, const void*, void*, float*, void*, CUstream_st*) {}

CudnnSdpaBackward::CudnnSdpaBackward(std::unique_ptr<CudnnPlan> plan, const CudnnShape&)
    : plan_(std::move(plan)), sums_bytes_(0), delta_bytes_(0) {}
CudnnSdpaBackward::~CudnnSdpaBackward() = default;
std::unique_ptr<CudnnSdpaBackward> CudnnSdpaBackward::create(const CudnnShape&, std::string* why_not) {
  if (why_not != nullptr) *why_not = kNoHeaders;
  return nullptr;
}
std::size_t CudnnSdpaBackward::workspace_bytes() const {
  return sums_bytes_ + delta_bytes_;
}
const std::string& CudnnSdpaBackward::engine() const {
  static const std::string none;
  return none;
}
void CudnnSdpaBackward::run(const void*, const void*, const void*, const void*, const float*, const void*,
                            void*, void*, void*, void*, CUstream_st*) {}

}  // namespace fa::bench

#endif
