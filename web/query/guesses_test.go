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

// wrong looks a key up that is none.
func wrong([sha256.Size]byte) (bool, error) { return false, nil }

// right looks a right key up.
func right([sha256.Size]byte) (bool, error) { return true, nil }

// from is an address, the zero one where the text is none.
func from(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// unseen must not be called.
func unseen(t *testing.T) func([sha256.Size]byte) (bool, error) {
	return func([sha256.Size]byte) (bool, error) {
		t.Helper()
		t.Error("the key is looked up")
		return false, nil
	}
}

// guess tries a wrong key, and says whether it is told.
func (g *Guesses) guess(t *testing.T, address, key string) bool {
	t.Helper()
	ok, wait, err := g.Try(from(address), key, wrong)
	if ok || err != nil {
		t.Fatalf("a wrong key: %v, %v", ok, err)
	}
	return wait == 0
}

func TestGuessesAreToldSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		for i := range 100 {
			if was := g.guess(t, "192.0.2.1", fmt.Sprint(i)); was != (i < 10) {
				t.Fatalf("guess %d is told: %v", i+1, was)
			}
		}
		_, wait, _ := g.Try(from("192.0.2.1"), "x", wrong)
		if wait <= 0 || wait > 6*time.Second {
			t.Fatalf("the next one waits %s", wait)
		}
		time.Sleep(wait - 1)
		if g.guess(t, "192.0.2.1", "x") {
			t.Error("a guess before its time is told")
		}
		time.Sleep(time.Nanosecond)
		if !g.guess(t, "192.0.2.1", "x") || g.guess(t, "192.0.2.1", "x") {
			t.Error("after the wait one guess is told, and no more")
		}
	})
}

// TestParallelGuessesAreCountedFirst: a guess is counted before its key is looked up, so that of many at the
// same time no more are told than one after the other.
func TestParallelGuessesAreCountedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		var told atomic.Int64
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				_, wait, _ := g.Try(from("192.0.2.1"), fmt.Sprint(i), func([sha256.Size]byte) (bool, error) {
					time.Sleep(time.Second)
					return false, nil
				})
				if wait == 0 {
					told.Add(1)
				}
			})
		}
		wg.Wait()
		if told.Load() != 10 {
			t.Errorf("%d guesses are told", told.Load())
		}
	})
}

// TestGuessesShareAnAccount: how many of eleven guesses are told, of which the n-th has the n-th address and
// key.
func TestGuessesShareAnAccount(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/guesses.txt", func(line string) (answer string) {
		synctest.Test(t, func(t *testing.T) {
			key, address, _ := strings.Cut(line, " from ")
			var g Guesses
			told := 0
			for i := range 11 {
				if g.guess(t, nth(address, i), nth(key, i)) {
					told++
				}
			}
			answer = fmt.Sprintf("%d are told", told)
		})
		return answer
	})
}

// nth puts a number in the place for it; of two texts it is one or the other by turns.
func nth(text string, i int) string {
	texts := strings.Split(text, " or ")
	text = texts[i%len(texts)]
	return strings.NewReplacer("{n}", fmt.Sprint(i), "{00000}", fmt.Sprintf("%05d", i)).Replace(text)
}

// A right key passes though 1,999 wrong ones came from its network and around it. After that it passes where
// it was right before; elsewhere one key a second is looked up.
func TestRightKeysAreUnharmed(t *testing.T) {
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
		for i := range seen.burst - 1 {
			g.guess(t, here, fmt.Sprint(key[:startBytes], i))
		}
		passes(here, key, true)
		for range 100 {
			g.guess(t, here, "dk_abcde")
		}
		passes(here, key, true)
		passes(there, key, true) // that a key was right counts for its beginning from anywhere
		passes(elsewhere, "dk_abcdeother", false)
		passes(here, "dk_zzz", false)
		if _, wait, _ := g.Try(from(here), "dk_zzz", unseen(t)); wait != time.Second {
			t.Errorf("the next look-up is after %s", wait)
		}
		time.Sleep(time.Second)
		passes(here, "dk_zzz", true)
	})
}

// What was no guess is not counted: a right key, and one that could not be looked up.
func TestWhatIsNoGuessIsNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		down := errors.New("down")
		for i := range 3 * seen.burst {
			if ok, wait, err := g.Try(from("192.0.2.1"), fmt.Sprint(i), right); !ok || wait != 0 ||
				err != nil {
				t.Fatalf("a right key: %v, %s, %v", ok, wait, err)
			}
			_, _, err := g.Try(from("192.0.2.1"), "x", func([sha256.Size]byte) (bool, error) {
				return false, down
			})
			if !errors.Is(err, down) {
				t.Fatal(err)
			}
		}
		for i := range 11 {
			if was := g.guess(t, "192.0.2.1", "x"); was != (i < 10) {
				t.Errorf("guess %d is told: %v", i+1, was)
			}
		}
	})
}

// A key that was right and is not any more is a guess like others from then on.
func TestARevokedKeyIsAGuess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		if ok, _, _ := g.Try(from("192.0.2.1"), "key", right); !ok {
			t.Fatal("a right key is refused")
		}
		for i := range 12 {
			if was := g.guess(t, "192.0.2.1", "key"); was != (i < 11) { // the first one is not counted
				t.Errorf("guess %d is told: %v", i+1, was)
			}
		}
	})
}

// A guesser with many networks has its own accounts forgotten, locks nobody out, and fills no memory.
func TestGuessersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Guesses
		for i := range 5 * maxRecent {
			g.guess(t, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), fmt.Sprintf("%08d", i))
			if i%(maxRecent/4) == 0 {
				g.guess(t, "192.0.2.1", "the guesser") // an account that is used again and again is kept
			}
		}
		if n := len(g.accounts.young) + len(g.accounts.old); n > 2*maxRecent {
			t.Errorf("%d accounts are remembered", n)
		}
		if g.guess(t, "192.0.2.1", "a guesser that goes on") {
			t.Error("an account in use is forgotten")
		}
		if !g.guess(t, "198.51.100.1", "somebody else") {
			t.Error("a network that never guessed is slowed down")
		}
	})
}
