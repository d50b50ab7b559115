package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// An Actor is who changes something, for the audit.
type Actor struct {
	Name string
	// Address is the IP address that the request came from; empty: it is not known, or the dispatcher acts by
	// itself.
	Address string
	Reason  string
}

// An AuditEntry is one mutation by a person or a key. Accepts are not audited: they are rows themselves.
type AuditEntry struct {
	ID      string
	Project string
	At      int64
	// Actor names the key; never a secret. Address is the IP address that it acted from; empty: it is not
	// known, or the dispatcher acted by itself.
	Actor   string
	Address string
	Action  string
	Object  string
	Reason  string
	// Before and After are JSON objects with what the change made different: the same members in both. Before
	// is empty where the object was made, After where it was removed, both where only something was looked
	// at. Secrets, credentials in headers and the values of a URL's query are masked; a body is never in
	// them.
	Before, After string
	// Detail is JSON text beside that, or empty.
	Detail string
	// Link is its place in the chain; zero: it is not chained yet.
	Link AuditLink
}

// An AuditFilter picks audit entries of one project. Zero fields pick all.
type AuditFilter struct {
	// Object is what was changed, word for word as entries name it: a callback, an endpoint, a schedule, a
	// redrive, a key or a secret by its id without a prefix; a lane by its key, so that of an endpoint by the
	// id with the prefix; a project by its id; a preset by kind and name ("policy/payment"); the index by its
	// generation ("generation 3"). A secret that was read is named by the lane that it is of.
	Object string
	// Action is an action, or the beginning of some up to a dot: "callback." picks all that was done to
	// callbacks.
	Action string
	// Actor is a part of the actor's name, in small or capital letters.
	Actor string
	// From and To bound At: From <= At < To. Lists are in the order of ids, which is that of the clocks of
	// the machines that wrote them.
	From, To int64
	// After continues a list: the id of the last one of the page before. Lists are newest first.
	After string
	Limit int
}

// An AuditPage is a part of the audit. Next is empty when it was the last; a page may have fewer entries than
// were asked for, even none, and still have a Next.
type AuditPage struct {
	Entries []AuditEntry
	Next    string
}

// An AuditLink is a place in the chain of the audit, which is one for all projects. The zero value is before
// the first entry.
type AuditLink struct {
	// Seq numbers the entries from 1 without a gap. Hash is of the entry and of all before it, in
	// hexadecimal.
	Seq  int64
	Hash string
}

// auditEncoding names what is hashed. Another encoding has another name.
const auditEncoding = "dispatcher audit 1"

// String writes a link for people to keep: "12:0a1b…".
func (l AuditLink) String() string { return strconv.FormatInt(l.Seq, 10) + ":" + l.Hash }

// ParseAuditLink reads what String wrote.
func ParseAuditLink(text string) (AuditLink, error) {
	seq, hash, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(seq, 10, 64)
	sum, wrong := hex.DecodeString(hash)
	switch {
	case err != nil || wrong != nil || n < 0:
	case n == 0 && hash == "", n > 0 && len(sum) == sha256.Size:
		return AuditLink{n, hex.EncodeToString(sum)}, nil
	}
	return AuditLink{}, errors.New("is not a number and a hash, as the server wrote them: SEQ:HASH")
}

// Next returns the link of the entry that follows l: an HMAC-SHA256 of the number, the hash before and every
// field of the entry but its Link. Each is written with its length before it, so that no two entries are
// written alike.
func (l AuditLink) Next(key []byte, e *AuditEntry) AuditLink {
	next := AuditLink{Seq: l.Seq + 1}
	b := make([]byte, 0, 512)
	number := func(n int64) { b = binary.BigEndian.AppendUint64(b, uint64(n)) }
	for _, text := range [...]string{
		auditEncoding, l.Hash, e.ID, e.Project, e.Actor, e.Address, e.Action, e.Object,
		e.Reason, e.Before, e.After, e.Detail,
	} {
		number(int64(len(text)))
		b = append(b, text...)
	}
	number(next.Seq)
	number(e.At)
	mac := hmac.New(sha256.New, key)
	mac.Write(b)
	next.Hash = hex.EncodeToString(mac.Sum(nil))
	return next
}

// An AuditFault says how an entry does not fit the chain.
type AuditFault string

// The faults of a chain.
const (
	// AuditChanged: the entry, or its place, is not the one that was chained.
	AuditChanged AuditFault = "changed"
	// AuditMissing: entries were removed before it.
	AuditMissing AuditFault = "missing"
	// AuditCut: the chain does not reach its head, or does not end with it.
	AuditCut AuditFault = "cut"
	// AuditBeyond: there are entries with numbers above that of the head.
	AuditBeyond AuditFault = "beyond"
	// AuditUnexpected: the chain does not have the link that its keeper expected.
	AuditUnexpected AuditFault = "unexpected"
)

// An AuditBreak is the first entry that does not fit.
type AuditBreak struct {
	Fault AuditFault
	// Seq is the number at which the chain breaks; ID is the entry's, empty where there is none.
	Seq int64
	ID  string
}

// CheckAudit checks that entries follow the link, and each the one before. It returns the link of the last
// that does, and the first that does not; nil: all do.
func CheckAudit(key []byte, after AuditLink, entries []AuditEntry) (AuditLink, *AuditBreak) {
	for i := range entries {
		e := &entries[i]
		next := after.Next(key, e)
		switch {
		case e.Link.Seq > next.Seq:
			return after, &AuditBreak{AuditMissing, next.Seq, e.ID}
		case e.Link.Seq != next.Seq || !hmac.Equal([]byte(e.Link.Hash), []byte(next.Hash)):
			return after, &AuditBreak{AuditChanged, e.Link.Seq, e.ID}
		}
		after = next
	}
	return after, nil
}

// An AuditHead is where the chain ends.
type AuditHead struct {
	// Link is that of the last entry, as it was written down beside the entries.
	Link AuditLink
	// Last is the highest number of an entry: above Link's where an entry was written by hand.
	Last int64
	// Unchained is how many entries wait for their place, counted up to MaxUnchained.
	Unchained int
}

// MaxUnchained bounds what AuditHead counts.
const MaxUnchained = 10_000
