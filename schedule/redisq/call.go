package redisq

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// maxParallel is the most shards that one call uses at the same time.
const maxParallel = 8

// An operation is a script that does the same with each element of a call.
type operation[E, R any] struct {
	script string
	check  func(E) error
	// ref returns the item of an element; its lane determines the shard. Elements with the same id are put
	// into different rounds. The script handles elements without an id one after the other.
	ref func(E) schedule.Ref
	// lock is set instead of ref if a lock determines the shard.
	lock func(E) string
	// fixed are the arguments before the elements, without those that fillArguments adds by name.
	fixed []any
	// encode returns an element's arguments. decode reads its part of the reply; nil: the reply has none.
	encode func(E) []any
	decode func(*reply) R
}

// each checks every element, and then runs the script on the shards in parallel. It returns the first error,
// with the replies of the shards that succeeded. After a failed round the later ones are not sent.
func each[E, R any](ctx context.Context, ix *Index, o operation[E, R], elements []E) ([]R, error) {
	replies := make([]R, len(elements))
	if err := schedule.Validate(o.script, elements, o.check); err != nil {
		return replies, err
	}
	if len(elements) == 0 {
		return replies, ctx.Err()
	}
	for _, round := range o.rounds(ix, elements) {
		var group errgroup.Group
		group.SetLimit(maxParallel)
		for shard, places := range round {
			group.Go(func() error {
				args := append(make([]any, 0, len(o.fixed)+8*len(places)), o.fixed...)
				for _, i := range places {
					args = append(args, o.encode(elements[i])...)
				}
				return ix.run(ctx, o.script, shard, args, func(r *reply) {
					r.tick()
					for _, i := range places {
						if o.decode != nil {
							replies[i] = o.decode(r)
						}
					}
				})
			})
		}
		if err := group.Wait(); err != nil {
			return replies, err
		}
	}
	return replies, nil
}

// rounds groups the positions of the elements by shard. An id occurs once in a round, because a script reads
// everything before it writes. Repetitions of an id follow in later rounds.
func (o *operation[E, R]) rounds(ix *Index, elements []E) []map[int][]int {
	var all []map[int][]int
	seen := make(map[string]int, len(elements))
	for i, e := range elements {
		shard, round := 0, 0
		if o.lock != nil {
			shard = shardOfLock(o.lock(e), len(ix.keys))
		} else {
			ref := o.ref(e)
			shard = ix.ShardOf(ref.Lane)
			if ref.ID != "" {
				round = seen[ref.ID]
				seen[ref.ID]++
			}
		}
		if round == len(all) {
			all = append(all, make(map[int][]int))
		}
		all[round][shard] = append(all[round][shard], i)
	}
	return all
}

// run runs an operation's script on a shard and passes the reply to read. args are the arguments of the
// caller, in the order of the header, followed by those of the elements. fillArguments adds the others.
func (ix *Index) run(ctx context.Context, operation string, shard int, args []any, read func(*reply)) error {
	return ix.runWith(ctx, operation, shard, ix.fillArguments(ix.scripts[operation], shard, args), read)
}

// runWith runs an operation's script with all its arguments. It turns the script's LOST and REBUILDING errors
// into those of package schedule.
func (ix *Index) runWith(ctx context.Context, operation string, shard int, args []any,
	read func(*reply)) error {
	if err := schedule.ValidateShard(operation, shard, len(ix.keys)); err != nil {
		return err
	}
	began := time.Now()
	values, err := ix.scripts[operation].run(ctx, ix.client, ix.keys[shard], args)
	ix.metrics.observe(operation, time.Since(began), err)
	if err != nil {
		switch {
		case redis.HasErrorPrefix(err, "LOST "):
			err = schedule.ErrLost
		case redis.HasErrorPrefix(err, "REBUILDING "):
			err = schedule.ErrRebuilding
		default:
			ix.reloadSlots(ctx)
		}
		return fmt.Errorf("%s on shard %d: %w", operation, shard, err)
	}
	r := &reply{values: values}
	read(r)
	if r.more() {
		r.err = fmt.Errorf("%d values more than expected", len(r.values)-r.at)
	}
	if r.err != nil {
		return fmt.Errorf("%s on shard %d: reply: %w", operation, shard, r.err)
	}
	return nil
}

// fillArguments adds the arguments that every script may have, by name.
func (ix *Index) fillArguments(s *script, shard int, args []any) []any {
	all := make([]any, 0, len(s.argv)+len(args))
	for _, name := range s.argv {
		switch name {
		case "GENERATION":
			all = append(all, encodeGeneration(ix.generation.Load()))
		case "OFFSET":
			all = append(all, ix.offset.Load())
		case "CHANNEL":
			all = append(all, ix.channel)
		case "SHARD":
			all = append(all, shard)
		default:
			if len(args) > 0 {
				all, args = append(all, args[0]), args[1:]
			}
		}
	}
	return append(all, args...)
}

// A reply is read value by value. The first value of an unexpected type sets err and ends the reading.
type reply struct {
	values []any
	at     int
	err    error
}

func (r *reply) more() bool { return r.err == nil && r.at < len(r.values) }

// read takes the next value.
func read[T any](r *reply) T {
	var none T
	if r.err == nil && r.at >= len(r.values) {
		r.err = io.ErrUnexpectedEOF
	}
	if r.err != nil {
		return none
	}
	r.at++
	v, ok := r.values[r.at-1].(T)
	if !ok {
		r.err = fmt.Errorf("value %d is a %T, not a %T", r.at, r.values[r.at-1], none)
	}
	return v
}

func (r *reply) int() int64 { return read[int64](r) }

func (r *reply) text() string { return read[string](r) }

func (r *reply) tick() schedule.Tick {
	return schedule.Tick{Now: r.int(), Next: r.int(), Seq: r.int()}
}

func (r *reply) position() schedule.Position {
	return schedule.Position{Place: schedule.Place(r.int()), Due: r.int()}
}
