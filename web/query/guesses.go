package query

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

// The limits of one account of guesses.
var (
	// told are the wrong keys that are answered as such: ten in a row, then ten a minute.
	told = terms{every: 6 * time.Second, burst: 10}
	// seen are the keys that are looked up: two thousand in a row, then one a second.
	seen = terms{every: time.Second, burst: 2000}
)

// startBytes is how much of a key's text says which key is guessed around: dk_ and five of its 32 characters.
const startBytes = 8

// Guesses slows the guessing of keys down, by network and by the beginning of the key. It is safe for
// concurrent use; the zero value is ready.
//
// A right key and a guess look alike until the key is looked up. If every key were looked up, and only the
// answer to a wrong one changed, a guesser would take each other answer for a hit and lose nothing. So
// look-ups are bounded too, at a number that is far higher: a right key passes although its network has just
// been used for guessing. Beyond it, one key a second is looked up, and what is not is refused. That bounds
// what guesses cost as well.
//
// A key that was right is remembered for its network, and passes there whatever others do. Were it remembered
// for all networks, guessers would have the keys in use confirmed at any speed. By its beginning it does pass
// from all networks: a guesser that knows how a key begins could otherwise lock its new addresses out.
//
// A guesser with many networks has accounts forgotten, its own oldest ones first, and locks no other network
// out.
type Guesses struct {
	mu       sync.Mutex
	accounts recent[account, spent]
	proven   recent[proof, struct{}]
}

// An account is a network that tries keys, or a beginning that keys are tried with; the other field is zero.
type account struct {
	network netip.Prefix
	start   [startBytes]byte
}

// spent is what an account has left.
type spent struct{ told, seen bucket }

// A proof is a key that was right, from a network; the zero network: from any.
type proof struct {
	network netip.Prefix
	hash    [sha256.Size]byte
}

// A try is one key that was given. accounts are those that it is counted in.
type try struct {
	proofs   [2]proof
	accounts []account
	// wait is how long it would take until a wrong key is told; zero: it is told.
	wait time.Duration
}

// Try has look say whether a key is right, which came from an address and has the hash. look is not called
// when too many wrong keys came before. wait is not zero when the answer may not say whether the key is
// wrong: the next one may come after it. An error of look is returned, and counts as no guess. All without a
// known address share one.
func (g *Guesses) Try(
	address netip.Addr, key string, look func(hash [sha256.Size]byte) (right bool, err error),
) (right bool, wait time.Duration, err error) {
	hash, network := sha256.Sum256([]byte(key)), networkOf(address)
	t := try{proofs: [2]proof{{network, hash}, {hash: hash}}}
	if wait := g.begin(&t, key); wait > 0 {
		return false, wait, nil
	}
	right, err = look(hash)
	g.end(&t, right, err != nil)
	if right || err != nil {
		return right, 0, err
	}
	return false, t.wait, nil
}

// begin counts a guess in every account that the key is not proven for, or returns how long the guess must
// wait.
func (g *Guesses) begin(t *try, key string) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	accounts := [2]account{{network: t.proofs[0].network}, {}}
	copy(accounts[1].start[:], key)
	for i, a := range accounts {
		if _, proven := g.proven.get(t.proofs[i]); !proven {
			t.accounts = append(t.accounts, a)
		}
	}
	if len(t.accounts) == 0 {
		return 0
	}
	now := time.Now()
	for _, a := range t.accounts {
		s, _ := g.accounts.get(a)
		wait = max(wait, s.seen.wait(seen, now))
		t.wait = max(t.wait, s.told.wait(told, now))
	}
	if wait == 0 {
		g.count(t, 1, now)
	}
	return wait
}

// end gives the guess back where it was none.
func (g *Guesses) end(t *try, right, failed bool) {
	if len(t.accounts) == 0 && right {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if right || failed {
		g.count(t, -1, time.Now())
	}
	for _, p := range t.proofs {
		if right {
			g.proven.put(p, struct{}{})
		} else if !failed {
			g.proven.forget(p) // it was revoked
		}
	}
}

// count takes n guesses from every account of a try. The mutex is held.
func (g *Guesses) count(t *try, n int, now time.Time) {
	for _, a := range t.accounts {
		s, _ := g.accounts.get(a)
		s.seen = s.seen.less(n, seen, now)
		if t.wait == 0 {
			s.told = s.told.less(n, told, now)
		}
		g.accounts.put(a, s)
	}
}

// networkOf returns the network that shares an account: one address of IPv4, however it is written, and a /64
// of IPv6, whatever its zone, which is what one customer has. That of no address is the zero network.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	network, err := a.Prefix(min(a.BitLen(), 64))
	if err != nil {
		return netip.Prefix{}
	}
	return network
}
