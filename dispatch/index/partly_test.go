package index

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// someShards is an index of which only the answers of its shards to a probe are of interest.
type someShards struct {
	Schedule
	answers []error
}

func (s someShards) Shards() int { return len(s.answers) }

func (s someShards) Stats(_ context.Context, shard int) (schedule.Stats, error) {
	return schedule.Stats{}, s.answers[shard]
}

// An index is silent for the others only where no shard answers: one master of a Cluster that is away must not stop what is due
// in the shards of the others.
func TestOneShardAwayDoesNotSilenceTheIndex(t *testing.T) {
	away, lost := errors.New("refused"), fmt.Errorf("stats: %w", schedule.ErrLost)
	for _, c := range []struct {
		name     string
		answers  []error
		answered int
		lost     bool
		failed   bool
	}{
		{"all answer", []error{nil, nil}, 2, false, false},
		{"one is away", []error{nil, away, nil}, 2, false, true},
		{"all are away", []error{away, away}, 0, false, true},
		{"a lost one answers", []error{lost, nil}, 2, true, false},
		{"one is lost, one away", []error{lost, away}, 1, true, true},
	} {
		trouble := newHealth(&Index{o: Options{Schedule: someShards{answers: c.answers}}})
		answered, isLost, err := trouble.askShards(t.Context())
		if answered != c.answered || isLost != c.lost || (err != nil) != c.failed {
			t.Errorf("%s: %d answered, lost %t, %v", c.name, answered, isLost, err)
		}
		trouble.reach.happens("failed")
		if err != nil {
			trouble.answered(answered)
		} else {
			trouble.reach.happens("all")
		}
		if want := c.failed && c.answered == 0; trouble.indexSilent() != want {
			t.Errorf("%s: silent is %t", c.name, !want)
		}
	}
}
