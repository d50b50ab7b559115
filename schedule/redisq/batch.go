package redisq

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// maxParallel is how many shards one call asks at a time.
const maxParallel = 8

// A batch is what one call sends to one shard: the places of its elements in the call.
type batch struct {
	shard    int
	elements []int
}

// rounds groups the elements of a call by shard. An id occurs once in a batch, because scripts read everything before
// they write anything; where a call repeats one, the repetitions follow in later rounds, after the first has been done.
func rounds(n int, shardOf func(int) int, idOf func(int) string) [][]batch {
	var all [][]batch
	seen := make(map[string]int, n)
	for i := range n {
		id := idOf(i)
		round := seen[id]
		seen[id]++
		if round == len(all) {
			all = append(all, nil)
		}
		shard, found := shardOf(i), false
		for b := range all[round] {
			if found = all[round][b].shard == shard; found {
				all[round][b].elements = append(all[round][b].elements, i)
				break
			}
		}
		if !found {
			all[round] = append(all[round], batch{shard, []int{i}})
		}
	}
	return all
}

// A spreading is a call whose elements go to several shards.
type spreading struct {
	operation string
	n         int
	check     func(i int) error
	shardOf   func(i int) int
	idOf      func(i int) string
	// fixed are the arguments that are not filled in by name.
	fixed []any
	// element returns the arguments of an element.
	element func(i int) []any
	// read takes an element's part of the reply; nil where there is none.
	read func(i int, r *reply)
}

// spread checks every element before anything is sent, and then asks the shards side by side. It returns the first
// error; shards that did not fail have been read.
func (ix *Index) spread(ctx context.Context, s spreading) error {
	if s.n > schedule.MaxBatch {
		return fmt.Errorf("%s: %d elements: %w", s.operation, s.n, schedule.ErrTooMany)
	}
	for i := range s.n {
		if err := s.check(i); err != nil {
			return fmt.Errorf("%s: element %d: %w", s.operation, i, err)
		}
	}
	if s.n == 0 {
		return ctx.Err()
	}
	for _, round := range rounds(s.n, s.shardOf, s.idOf) {
		if len(round) == 1 {
			if err := ix.ask(ctx, s, round[0]); err != nil {
				return err
			}
			continue
		}
		var group errgroup.Group
		group.SetLimit(maxParallel)
		for _, b := range round {
			group.Go(func() error { return ix.ask(ctx, s, b) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// ask sends one batch and reads its reply.
func (ix *Index) ask(ctx context.Context, s spreading, b batch) error {
	args := append(make([]any, 0, len(s.fixed)+8*len(b.elements)), s.fixed...)
	for _, i := range b.elements {
		args = append(args, s.element(i)...)
	}
	r, err := ix.call(ctx, s.operation, b.shard, args...)
	if err != nil {
		return err
	}
	r.tick()
	if s.read != nil {
		for _, i := range b.elements {
			s.read(i, r)
		}
	}
	return r.done()
}

// byLane returns the function that finds an element's shard by its lane.
func (ix *Index) byLane(lane func(i int) int64) func(int) int {
	return func(i int) int { return shardOfLane(lane(i), len(ix.keys)) }
}
