package query

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

// Limits of one source of guesses.
var (
	// answeredLimit limits the invalid keys that get the answer "invalid": ten at once, then ten a minute.
	answeredLimit = bucketLimit{every: 6 * time.Second, burst: 10}
	// lookupLimit limits the keys that are looked up: two thousand at once, then one a second.
	lookupLimit = bucketLimit{every: time.Second, burst: 2000}
)

// startBytes is the length of the beginning of a key by which guesses are counted: dk_ and five of the other
// 32 characters.
const startBytes = 8

// Guesses slows down the guessing of API keys. It counts guesses by network and by the beginning of the key.
// It is safe for concurrent use, and the zero value is ready.
//
// Two limits apply. Beyond answeredLimit, an invalid key gets the answer "try again later" instead of
// "invalid". Keys are still looked up, so a valid key passes even from a network that was just used for
// guessing. If this were the only limit, a guesser could read any other answer as a hit, and would lose
// nothing. So lookupLimit, which is much higher, also limits the look-ups. Beyond it a key is rejected
// without a look-up. This also limits the cost of guesses.
//
// A key that was valid is remembered together with its network, and then always passes from there. It is not
// remembered for all networks, because then guessers could confirm keys in use at any speed. It is remembered
// for all networks only against the limit of its beginning. Otherwise a guesser that knows the beginning of a
// key could lock out the key's new addresses.
//
// Memory is limited. A guesser with many networks evicts its own oldest sources first, and locks out no other
// network.
type Guesses struct {
	mu      sync.Mutex
	sources recent[source, tokens]
	valid   recent[validKey, struct{}]
}

// A source is a network that tries keys, or the beginning of the tried keys. The other field is zero.
type source struct {
	network netip.Prefix
	start   [startBytes]byte
}

// tokens are the remaining answers and look-ups of a source.
type tokens struct{ answered, lookups bucket }

// A validKey is a key that was valid from a network. The zero network stands for all networks.
type validKey struct {
	network netip.Prefix
	hash    [sha256.Size]byte
}

// A check is the check of one key.
type check struct {
	// validKeys are the key with its network, and the key with the zero network.
	validKeys [2]validKey
	// sources are the sources in which the key counts as a guess.
	sources []source
	// wait is the time until the answer may be "invalid". Zero: now.
	wait time.Duration
}

// Try checks a key from an address. look looks the key up by its hash; Try does not call it beyond the limit
// of look-ups. A wait that is not zero means that the answer must not say whether the key is valid, and that
// the caller may try again after it. Try returns an error of look, and does not count it as a guess. All
// callers without a known address share one source.
func (g *Guesses) Try(
	address netip.Addr, key string, look func(hash [sha256.Size]byte) (right bool, err error),
) (right bool, wait time.Duration, err error) {
	hash, network := sha256.Sum256([]byte(key)), networkOf(address)
	c := check{validKeys: [2]validKey{{network, hash}, {hash: hash}}}
	if wait := g.begin(&c, key); wait > 0 {
		return false, wait, nil
	}
	right, err = look(hash)
	g.end(&c, right, err != nil)
	if right || err != nil {
		return right, 0, err
	}
	return false, c.wait, nil
}

// begin counts a guess in each source for which the key is not known to be valid, or returns how long the
// guess must wait. It counts before the look-up, so that parallel guesses cannot pass together.
func (g *Guesses) begin(c *check, key string) (wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sources := [2]source{{network: c.validKeys[0].network}, {}}
	copy(sources[1].start[:], key)
	for i, s := range sources {
		if _, valid := g.valid.get(c.validKeys[i]); !valid {
			c.sources = append(c.sources, s)
		}
	}
	if len(c.sources) == 0 {
		return 0
	}
	now := time.Now()
	for _, s := range c.sources {
		left, _ := g.sources.get(s)
		wait = max(wait, left.lookups.wait(lookupLimit, now))
		c.wait = max(c.wait, left.answered.wait(answeredLimit, now))
	}
	if wait == 0 {
		g.count(c, 1, now)
	}
	return wait
}

// end undoes the count if the key was valid or could not be looked up, and remembers or forgets the key.
func (g *Guesses) end(c *check, right, failed bool) {
	if len(c.sources) == 0 && right {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if right || failed {
		g.count(c, -1, time.Now())
	}
	for _, k := range c.validKeys {
		if right {
			g.valid.put(k, struct{}{})
		} else if !failed {
			g.valid.forget(k) // the key was revoked
		}
	}
}

// count takes n tokens from each source of a check; a negative n returns them. The caller holds the mutex.
func (g *Guesses) count(c *check, n int, now time.Time) {
	for _, s := range c.sources {
		left, _ := g.sources.get(s)
		left.lookups = left.lookups.less(n, lookupLimit, now)
		if c.wait == 0 {
			left.answered = left.answered.less(n, answeredLimit, now)
		}
		g.sources.put(s, left)
	}
}

// networkOf returns the network of a source: one IPv4 address in any notation, or an IPv6 /64 in any zone,
// which is what one customer usually has. An invalid address has the zero network.
func networkOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	network, err := a.Prefix(min(a.BitLen(), 64))
	if err != nil {
		return netip.Prefix{}
	}
	return network
}
