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
