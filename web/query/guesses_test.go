package query

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// wrong is the look-up of an invalid key.
func wrong([sha256.Size]byte) (bool, error) { return false, nil }

// right is the look-up of a valid key.
func right([sha256.Size]byte) (bool, error) { return true, nil }

// from parses an address. Other texts are the zero address.
func from(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// noLookup fails the test if it is called.
func noLookup(t *testing.T) func([sha256.Size]byte) (bool, error) {
	return func([sha256.Size]byte) (bool, error) {
		t.Helper()
		t.Error("the key was looked up")
		return false, nil
	}
}

// guess tries an invalid key, and reports whether the answer is "invalid".
func (g *Guesses) guess(t *testing.T, address, key string) bool {
	t.Helper()
	ok, wait, err := g.Try(from(address), key, wrong)
	if ok || err != nil {
		t.Fatalf("an invalid key: %v, %v", ok, err)
	}
	return wait == 0
}

// TestAnswersAreLimited checks that ten guesses are answered at once, and one more every six seconds.
func TestAnswersAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		for i := range 100 {
			if answered := g.guess(t, "192.0.2.1", fmt.Sprint(i)); answered != (i < 10) {
				t.Fatalf("guess %d is answered: %v", i+1, answered)
			}
		}
		_, wait, _ := g.Try(from("192.0.2.1"), "x", wrong)
		if wait <= 0 || wait > 6*time.Second {
			t.Fatalf("the next one waits %s", wait)
		}
		time.Sleep(wait - 1)
		if g.guess(t, "192.0.2.1", "x") {
			t.Error("a guess before the end of the wait is answered")
		}
		time.Sleep(time.Nanosecond)
		if !g.guess(t, "192.0.2.1", "x") || g.guess(t, "192.0.2.1", "x") {
			t.Error("after the wait exactly one guess must be answered")
		}
	})
}

// TestParallelGuesses checks that a guess is counted before its key is looked up. So parallel guesses get no
// more answers than sequential ones.
func TestParallelGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		var answered atomic.Int64
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				_, wait, _ := g.Try(from("192.0.2.1"), fmt.Sprint(i), func([sha256.Size]byte) (bool, error) {
					time.Sleep(time.Second)
					return false, nil
				})
				if wait == 0 {
					answered.Add(1)
				}
			})
		}
		wg.Wait()
		if answered.Load() != 10 {
			t.Errorf("%d guesses are answered, want 10", answered.Load())
		}
	})
}

// TestSources runs testdata/guesses.txt. A line is a pattern of keys and one of addresses. Of eleven guesses,
// guess n has key n and address n. The answer is the number of answered guesses: 10 if all share a source.
func TestSources(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/guesses.txt", func(line string) (answer string) {
		synctest.Test(t, func(t *testing.T) {
			key, address, _ := strings.Cut(line, " from ")
			var g Guesses
			answered := 0
			for i := range 11 {
				if g.guess(t, nth(address, i), nth(key, i)) {
					answered++
				}
			}
			answer = fmt.Sprintf("%d answered", answered)
		})
		return answer
	})
}

// nth returns text i of a pattern. {n} stands for the number; "A or B" alternates.
func nth(text string, i int) string {
	texts := strings.Split(text, " or ")
	text = texts[i%len(texts)]
	return strings.NewReplacer("{n}", fmt.Sprint(i), "{00000}", fmt.Sprintf("%05d", i)).Replace(text)
}

// TestValidKeysPass checks that a valid key passes although 1,999 invalid keys with its beginning came from
// its network. Beyond the limit of look-ups it passes only where it was valid before. Elsewhere one key a
// second is looked up.
func TestValidKeysPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const here, there, elsewhere, key = "192.0.2.1", "192.0.2.2", "192.0.2.3", "dk_abcdefgh"
		var g Guesses
		passes := func(address, key string, want bool) {
			t.Helper()
			ok, wait, err := g.Try(from(address), key, right)
			if ok != want || err != nil || ok == (wait > 0) {
				t.Errorf("%s from %s: %v, after %s, %v", key, address, ok, wait, err)
			}
		}
		for i := range lookupLimit.burst - 1 {
			g.guess(t, here, fmt.Sprint(key[:startBytes], i))
		}
		passes(here, key, true)
		for range 100 {
			g.guess(t, here, "dk_abcde")
		}
		passes(here, key, true)
		passes(there, key, true) // a key that was valid passes the limit of its beginning from every network
		passes(elsewhere, "dk_abcdeother", false)
		passes(here, "dk_zzz", false)
		if _, wait, _ := g.Try(from(here), "dk_zzz", noLookup(t)); wait != time.Second {
			t.Errorf("the next look-up is in %s", wait)
		}
		time.Sleep(time.Second)
		passes(here, "dk_zzz", true)
	})
}

// TestOnlyGuessesCount checks that a valid key is not counted, and neither is a failed look-up.
func TestOnlyGuessesCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		down := errors.New("down")
		for i := range 3 * lookupLimit.burst {
			ok, wait, err := g.Try(from("192.0.2.1"), fmt.Sprint(i), right)
			if !ok || wait != 0 || err != nil {
				t.Fatalf("a valid key: %v, %s, %v", ok, wait, err)
			}
			_, _, err = g.Try(from("192.0.2.1"), "x", func([sha256.Size]byte) (bool, error) {
				return false, down
			})
			if !errors.Is(err, down) {
				t.Fatal(err)
			}
		}
		for i := range 11 {
			if answered := g.guess(t, "192.0.2.1", "x"); answered != (i < 10) {
				t.Errorf("guess %d is answered: %v", i+1, answered)
			}
		}
	})
}

// TestRevokedKeys checks that a revoked key counts as a guess.
func TestRevokedKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		if ok, _, _ := g.Try(from("192.0.2.1"), "key", right); !ok {
			t.Fatal("a valid key is rejected")
		}
		for i := range 12 {
			// The first guess is not counted: the key was still known to be valid.
			if answered := g.guess(t, "192.0.2.1", "key"); answered != (i < 11) {
				t.Errorf("guess %d is answered: %v", i+1, answered)
			}
		}
	})
}

// TestMemoryIsLimited checks that a guesser with many networks evicts only its own sources, locks out no
// other network, and does not fill the memory.
func TestMemoryIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		for i := range 5 * maxRecent {
			g.guess(t, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), fmt.Sprintf("%08d", i))
			if i%(maxRecent/4) == 0 {
				g.guess(t, "192.0.2.1", "the guesser") // a source in constant use is kept
			}
		}
		if n := len(g.sources.young) + len(g.sources.old); n > 2*maxRecent {
			t.Errorf("%d sources are remembered", n)
		}
		if g.guess(t, "192.0.2.1", "another guess") {
			t.Error("a source in use was evicted")
		}
		if !g.guess(t, "198.51.100.1", "first guess") {
			t.Error("a network without earlier guesses is slowed down")
		}
	})
}
