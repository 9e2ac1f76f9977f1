// An array that forks share: copying it copies one pointer, writing copies the few blocks on the way that others see.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace slurm_sim {

template <class T, int BITS = 5>
class SharedLog {
  static constexpr int64_t kWidth = int64_t{1} << BITS;
  struct Block {
    std::atomic<int> users{1};
  };
  struct Leaf : Block {
    T items[kWidth]{};
  };
  struct Inner : Block {
    Block* child[kWidth]{};
  };

 public:
  SharedLog() = default;
  SharedLog(const SharedLog& o) : root_(o.root_), size_(o.size_), height_(o.height_) { hold(root_); }
  SharedLog(SharedLog&& o) noexcept : root_(o.root_), size_(o.size_), height_(o.height_) {
    o.root_ = nullptr;
    o.size_ = 0;
    o.height_ = 0;
  }
  SharedLog& operator=(SharedLog o) noexcept {
    std::swap(root_, o.root_);
    std::swap(size_, o.size_);
    std::swap(height_, o.height_);
    return *this;
  }
  ~SharedLog() { drop(root_, height_); }

  int64_t size() const { return size_; }
  const T& operator[](int64_t i) const {
    const Block* block = root_;
    for (int level = height_; level > 0; level--)
      block = static_cast<const Inner*>(block)->child[i >> (BITS * level) & (kWidth - 1)];
    return static_cast<const Leaf*>(block)->items[i & (kWidth - 1)];
  }
  // To be written; what lies between the old end and i is T{}. Not inlined: it would be most of what its callers compile to.
  [[gnu::noinline]] T& at(int64_t i) {
    if (i >= size_) size_ = i + 1;
    if (!root_) root_ = new Leaf;
    while (i >> (BITS * (height_ + 1))) {
      auto* above = new Inner;
      above->child[0] = root_;
      root_ = above;
      height_++;
    }
    Block** place = &root_;
    for (int level = height_;; level--) {
      own(place, level);
      if (level == 0) return static_cast<Leaf*>(*place)->items[i & (kWidth - 1)];
      place = &static_cast<Inner*>(*place)->child[i >> (BITS * level) & (kWidth - 1)];
    }
  }
  int64_t push(const T& item) {
    at(size_) = item;
    return size_ - 1;
  }
  // As [], but T{} where nothing was written.
  T get(int64_t i) const {
    if (i >= size_) return T{};
    const Block* block = root_;
    for (int level = height_; block && level > 0; level--)
      block = static_cast<const Inner*>(block)->child[i >> (BITS * level) & (kWidth - 1)];
    return block ? static_cast<const Leaf*>(block)->items[i & (kWidth - 1)] : T{};
  }

 private:
  static void hold(Block* block) {
    if (block) block->users.fetch_add(1, std::memory_order_relaxed);
  }
  static void drop(Block* block, int level) {
    if (!block || block->users.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    if (level == 0) {
      delete static_cast<Leaf*>(block);
      return;
    }
    for (Block* child : static_cast<Inner*>(block)->child) drop(child, level - 1);
    delete static_cast<Inner*>(block);
  }
  // Makes the block in this place exist and ours alone.
  static void own(Block** place, int level) {
    Block* old = *place;
    if (!old) {
      *place = level ? static_cast<Block*>(new Inner) : new Leaf;
    } else if (old->users.load(std::memory_order_acquire) > 1) {
      if (level) {
        auto* copy = new Inner;
        for (int64_t i = 0; i < kWidth; i++) hold(copy->child[i] = static_cast<Inner*>(old)->child[i]);
        *place = copy;
      } else {
        auto* copy = new Leaf;
        for (int64_t i = 0; i < kWidth; i++) copy->items[i] = static_cast<Leaf*>(old)->items[i];
        *place = copy;
      }
      drop(old, level);
    }
  }

  Block* root_ = nullptr;
  int64_t size_ = 0;
  int height_ = 0;
};

}  // namespace slurm_sim
