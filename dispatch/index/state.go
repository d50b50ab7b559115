package index

import "sync"

// This file is what is known of the index: whether it answers, and whether it holds what SQL says. Each is
// one state that changes as its table says, and all else asks for it.
//
// They are states of the index and not of each shard: one call goes to many shards and its error does not say
// which of them failed, claims are opened when every shard is filled, and what waits for the index waits for
// all of it.

// A reach says whether the index answers.
type reach string

const (
	// answering: every shard, as far as is known. partly: some shards answered the last probe; all are asked,
	// because what is due in those must not wait for the others. silent: none is known to answer, and only
	// the probe asks.
	answering reach = "answering"
	partly    reach = "partly"
	silent    reach = "silent"
)

// reachChanges are by what happens: that an operation failed, and how many shards answered a probe.
var reachChanges = changes[reach]{
	"failed": {answering: silent},
	"none":   {partly: silent},
	"some":   {silent: partly},
	"all":    {partly: answering, silent: answering},
}

// A content says whether the index holds what SQL says.
type content string

const (
	// sound: it does, as far as this process knows. doubtful: an operation met a lost or a closed index since
	// it was last looked at, or it was not looked at yet. rebuilding: this process fills it. foreign: it does
	// not, and this process, which is held, leaves it as it was found.
	sound      content = "sound"
	doubtful   content = "doubtful"
	rebuilding content = "rebuilding"
	foreign    content = "foreign"
)

// contentChanges are by what happens: that an operation met something odd, what a look at the index's
// generation found, and what becomes of a rebuild.
var contentChanges = changes[content]{
	"odd":     {sound: doubtful, foreign: doubtful},
	"matches": {doubtful: sound, foreign: sound},
	"left":    {sound: foreign, doubtful: foreign},
	"begun":   {sound: rebuilding, doubtful: rebuilding, foreign: rebuilding},
	"filled":  {rebuilding: sound},
	"failed":  {rebuilding: doubtful},
}

// changes are what becomes of each state when something happens. A state that is not there stays as it is.
type changes[S comparable] map[string]map[S]S

// A state is one of those that its changes are of. Its methods may be called from many goroutines.
type state[S comparable] struct {
	changes changes[S]

	mu  sync.Mutex
	now S
}

func newState[S comparable](first S, c changes[S]) *state[S] {
	return &state[S]{changes: c, now: first}
}

func (s *state[S]) is(one S) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now == one
}

// happens changes the state, and returns what it was and what it is.
func (s *state[S]) happens(what string) (was, is S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.now
	if next, ok := s.changes[what][was]; ok {
		s.now = next
	}
	return was, s.now
}
