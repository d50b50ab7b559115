package index

import "sync"

// This file has the two states of the index: whether it answers (reach), and whether it holds what SQL says
// (content). Each changes only as its table says.
//
// They are states of the whole index and not of each shard. One call goes to many shards, and its error does
// not say which of them failed. A rebuild fills all shards before it is done.

// A reach says whether the index answers.
type reach string

const (
	// answering: every shard, as far as is known. partly: some shards answered the last probe; all are
	// called, because the callbacks in those must not wait for the others. silent: no shard is known to
	// answer, and only the probe calls the index.
	answering reach = "answering"
	partly    reach = "partly"
	silent    reach = "silent"
)

// reachTransitions by event: an operation failed; none, some or all shards answered a probe.
var reachTransitions = transitions[reach]{
	"failed": {answering: silent},
	"none":   {partly: silent},
	"some":   {silent: partly},
	"all":    {partly: answering, silent: answering},
}

// A content says whether the index holds what SQL says.
type content string

const (
	// matching: it does, as far as this process knows. unchecked: an operation has met a lost or closed index
	// since the last check, a rebuild has failed, or there was no check yet. rebuilding: this process fills
	// it. foreign: it does not match, and this process leaves it unchanged because sending is off.
	matching   content = "matching"
	unchecked  content = "unchecked"
	rebuilding content = "rebuilding"
	foreign    content = "foreign"
)

// contentTransitions by event: an operation met a lost or closed index (mismatch); a check found that the
// index matches (match) or is to be left alone; a rebuild has begun, filled the index, or failed.
var contentTransitions = transitions[content]{
	"mismatch":   {matching: unchecked, foreign: unchecked},
	"match":      {unchecked: matching, foreign: matching},
	"left alone": {matching: foreign, unchecked: foreign},
	"begun":      {matching: rebuilding, unchecked: rebuilding, foreign: rebuilding},
	"filled":     {rebuilding: matching},
	"failed":     {rebuilding: unchecked},
}

// transitions map an event and a state to the next state. A state that is missing under an event stays.
type transitions[S comparable] map[string]map[S]S

// A state is a current state with its transitions. Its methods are safe for concurrent use.
type state[S comparable] struct {
	transitions transitions[S]

	mu  sync.Mutex
	now S
}

func newState[S comparable](first S, t transitions[S]) *state[S] {
	return &state[S]{transitions: t, now: first}
}

func (s *state[S]) is(want S) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now == want
}

// apply changes the state by the event, and returns the states before and after.
func (s *state[S]) apply(event string) (was, is S) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.now
	if next, ok := s.transitions[event][was]; ok {
		s.now = next
	}
	return was, s.now
}
