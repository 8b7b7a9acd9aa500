// V8 with one step taken back, or one idea that was not kept put in, at a time. A variant is made of the
// rung's own Configs, all tiles of a head dimension. Code that it has of its own is a specialisation or an
// overload for its Config, which forward_kernel finds where it is instantiated.
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/ablations.hpp"
#include "kernels/device/attention/exp2_polynomial.cuh"
#include "kernels/v8_hopper/instance.cuh"

namespace fa::internal::v8 {

// ---- a product at a time: P V of this key tile, then S of the next, then the softmax

template <class Base>
struct OneProduct : Base {
  static constexpr bool kOverlapsProducts = false;
};

// ---- no turns: every consumer starts its products when it can

template <class Base>
struct NoTurns : Base {};

template <class Base>
class Turns<NoTurns<Base>> {
 public:
  __device__ explicit Turns(int) {}
  __device__ void take() const {}
  __device__ void pass() const {}
};

// ---- a block a query tile

template <class Base>
struct OneTileABlock : Base {
  static constexpr bool kIsPersistent = false;
};

// ---- O rescaled wherever a row's largest score has grown

template <class Base>
struct AlwaysRescaled : Base {
  static constexpr float kRescaleThreshold = 0;
};

// ---- a quarter of the exponentials on the FMA pipe

template <class Base>
struct QuarterByPolynomial : Base {};

template <class Base>
__device__ void exponentiate_scores(WgmmaRows<QuarterByPolynomial<Base>>& rows) {
#pragma unroll
  for (int c = 0; c < WgmmaRows<QuarterByPolynomial<Base>>::kKeyColumns; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& x = rows.S[0][c][e];
      const float power = x * rows.factor - rows.R[0][e / 2];
      x = c % 4 == 0 ? exp2_polynomial(power) : ptx::ex2(power);
      rows.l[0][e / 2] += x;
    }
  }
}

// ---- no producer: the first thread of the first consumer copies a tile where one has been released, and
// that of each consumer stores its O

template <class Base>
struct NoProducer : Base {
  static_assert(Base::kHasOutputPlace);  // Copies knows nothing of O in V's stages
  static constexpr int kThreads = 128 * Base::kConsumers;
};

/// The key tiles of a block, one after the other, for one ring.
template <class Config>
struct KeyTiles {
  Walk<Config> walk;
  bool more;
  int tile;

  __device__ KeyTiles(const ForwardParams& p, const RoundOrder& order) : walk(p, order) { next_query_tile(); }
  __device__ void next_query_tile() {
    do {
      more = walk.next();
    } while (more && !walk.has_keys());
    tile = walk.last_tile;
  }
  __device__ void next() {
    if (--tile < walk.first_tile) next_query_tile();
  }
};

/// By one thread: the next copy to each ring, in the order in which the consumers want them.
template <class Config>
struct Copies {
  SharedTiles<Config>& s;
  const TensorMaps& maps;
  const RoundOrder& order;
  Pipeline<1> q;
  Pipeline<Config::kStages> k, v;
  KeyTiles<Config> of_q, of_k, of_v;

  __device__ Copies(SharedTiles<Config>& tiles, const TensorMaps& tensor_maps, const ForwardParams& p,
                    const RoundOrder& order_of)
      : s(tiles),
        maps(tensor_maps),
        order(order_of),
        q(tiles.q),
        k(tiles.k),
        v(tiles.v),
        of_q(p, order_of),
        of_k(p, order_of),
        of_v(p, order_of) {}

  __device__ void start_next(Ring ring) {
    const auto key_head = [&](const Walk<Config>& walk) {
      return divide(walk.h(), order.heads_per_key_head);
    };
    if (ring == Ring::q && of_q.more) {
      const uint32_t full = q.fill(Config::kBoxes * Config::kBytesM);
      copy_rows<Config::kBoxes>(s.Q, maps.q, Config::kBytesM, of_q.walk.query0, of_q.walk.h(), of_q.walk.b(),
                                full);
      q.advance();
      of_q.next_query_tile();
    } else if (ring == Ring::k && of_k.more) {
      const uint32_t full = k.fill(Config::kBoxes * Config::kBytesN);
      copy_rows<Config::kBoxes>(s.K[k.stage()], maps.k, Config::kBytesN, of_k.tile * Config::kBlockN,
                                key_head(of_k.walk), of_k.walk.b(), full);
      k.advance();
      of_k.next();
    } else if (ring == Ring::v && of_v.more) {
      const uint32_t full = v.fill(Config::kBoxesV * Config::kBytesN);
      copy_rows<Config::kBoxesV>(s.V[v.stage()], maps.v, Config::kBytesN, of_v.tile * Config::kBlockN,
                                 key_head(of_v.walk), of_v.walk.b(), full);
      v.advance();
      of_v.next();
    }
  }
};

template <class Base>
__device__ void run_warpgroup(SharedTiles<NoProducer<Base>>& s, const TensorMaps& maps,
                              const ForwardParams& p, const Schedule& schedule, int warpgroup) {
  const int consumer = warpgroup;
  const auto store = [&](const Walk<NoProducer<Base>>& walk, int n) {
    if (threadIdx.x % 128 == 0) store_output(s, maps, p, walk, n, consumer, consumer);
    __syncwarp();
  };
  if (consumer > 0) {
    compute_tiles(s, p, schedule, consumer, Nothing{}, store);
    return;
  }
  Copies<NoProducer<Base>> copies(s, maps, p, schedule.order);
  const auto start_next = [&](Ring ring) {
    if (threadIdx.x == 0) copies.start_next(ring);
    __syncwarp();
  };
  for (const Ring ring : {Ring::k, Ring::q, Ring::k, Ring::v, Ring::v}) start_next(ring);  // all stages
  compute_tiles(s, p, schedule, 0, start_next, store);
}

// ---- the list

template <template <class> class Variant, class... ChoiceTypes>
int launch_variant_of(Choices<ChoiceTypes...>, const ForwardParams& params, const LaunchContext& context) {
  return launch<Choices<Choice<Variant<typename ChoiceTypes::Config>, ChoiceTypes::kCost>...>>(
      params, Dtype::float16, context);
}

template <template <class> class Variant>
int launch_variant(const ForwardParams& params, const LaunchContext& context, Dtype, Dtype) {
  const int head_dim = std::max(params.D, params.Dv);
  if (head_dim <= 64) return launch_variant_of<Variant>(Tiles<__half, 64, 64>{}, params, context);
  if (head_dim <= 96) return launch_variant_of<Variant>(Tiles<__half, 96, 96>{}, params, context);
  return launch_variant_of<Variant>(Tiles<__half, 128, 128>{}, params, context);
}

// Without a producer the first consumer waits for the others where it copies, and they for its turns where
// they pass a tile by before it does: rows that a window's left side leaves without a key may do so.
std::string reject_left_bounds(const ForwardProblem& problem, const DeviceProperties&) {
  return problem.window_lo == -problem.M ? "" : "takes no window with a left side";
}

template <template <class> class Variant>
constexpr Ablation ablation(const char* name, const char* what, RejectForward* reject = nullptr) {
  return {Version::V8, name, what, nullptr, launch_variant<Variant>, /*is_candidate=*/false, 0, 128, reject};
}

std::span<const Ablation> ablations() {
  static constexpr Ablation kAblations[] = {
      ablation<NoProducer>("no_producer", "a consumer's thread copies, not a producer", reject_left_bounds),
      ablation<NoTurns>("no_turns", "consumers start products when they can, not in turn"),
      ablation<OneProduct>("one_product", "S of the next key tile after P V of this one, not beside it"),
      ablation<OneTileABlock>("one_tile_a_block", "a block computes one query tile, not many"),
      ablation<AlwaysRescaled>("always_rescaled", "O is rescaled wherever a row's largest score grows"),
      ablation<QuarterByPolynomial>("quarter_by_polynomial",
                                    "a quarter of the exponentials by polynomial on the FMA pipe"),
  };
  return kAblations;
}

}  // namespace fa::internal::v8
