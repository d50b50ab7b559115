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

// maxParallel is how many shards one call asks at a time.
const maxParallel = 8

// An operation is a script that does the same with each element of a call.
type operation[E, R any] struct {
	script string
	check  func(E) error
	// ref says which item an element is about, and the lane which shard it goes to. Elements without an id
	// are done one after the other by the script.
	ref func(E) schedule.Ref
	// lock replaces ref where the element goes to the shard of a lock.
	lock func(E) string
	// fixed are the arguments before the elements that are not filled in by name.
	fixed []any
	// encode returns an element's arguments, decode reads its part of the reply; nil where there is none.
	encode func(E) []any
	decode func(*reply) R
}

// each checks every element before anything is sent, and then asks the shards side by side. It returns the
// first error; the replies of shards that did not fail are there beside it.
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
				return ix.ask(ctx, o.script, shard, args, func(r *reply) {
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

// rounds groups the places of elements by shard. An id occurs once in a round, because scripts read
// everything before they write anything; where a call repeats one, the repetitions follow in later rounds,
// after the first has been done.
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

// ask runs one operation's script on a shard and has its reply read. args are the caller's arguments in the
// order of the header, and then those of the elements; the others are filled in by name.
func (ix *Index) ask(ctx context.Context, operation string, shard int, args []any, read func(*reply)) error {
	return ix.send(ctx, operation, shard, ix.arguments(ix.scripts[operation], shard, args), read)
}

// send is ask with all arguments.
func (ix *Index) send(ctx context.Context, operation string, shard int, args []any, read func(*reply)) error {
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
			ix.lookAround(ctx)
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

// arguments fills in by name what every script may have.
func (ix *Index) arguments(s *script, shard int, args []any) []any {
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

// A reply is read value by value. The first that is not of the kind asked for is remembered, and ends what
// follows.
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
