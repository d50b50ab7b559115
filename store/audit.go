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

// An Actor names the person or program that makes a change, for the audit log.
type Actor struct {
	// Name is the name of the key or the user, never a secret.
	Name string
	// ID identifies the key or the user apart from the name. Empty: the dispatcher itself.
	ID string
	// Address is the IP address of the request. It is empty if it is unknown, or if the dispatcher made the
	// change without a request.
	Address string
	Reason  string
}

// An AuditEntry is one change by a person or a key, or one read of a secret. Accepts have no entries: the
// callbacks are their record.
type AuditEntry struct {
	// ID is a bare ULID.
	ID      string
	Project string
	At      int64
	// Actor, Address and Reason are those of the Actor.
	Actor   string
	Address string
	// Action is such as "callback.cancel". Object is named as AuditFilter.Object is.
	Action string
	Object string
	Reason string
	// Before and After are JSON objects with the members that the change made different, the same in both.
	// Before is empty for a new object, After for a removed one, both for a read. Secrets, credentials in
	// headers and the values of URL queries are masked. Payloads are left out.
	Before, After string
	// Detail is more JSON about the change, or empty.
	Detail string
	// Link is the entry's place in the chain. Zero: the entry is not chained yet.
	Link AuditLink
}

// An AuditFilter picks audit entries of one project. Zero fields pick all.
type AuditFilter struct {
	// Object is the exact name of the changed object in its entries:
	//   - a callback, endpoint, schedule, redrive, key or secret: its id without a prefix;
	//   - a lane: its key, so the lane of an endpoint has the endpoint's id with the prefix;
	//   - a project: its id;
	//   - a preset: kind and name, such as "policy/payment";
	//   - a relay source: "relay/" and its name;
	//   - the index: its generation, such as "generation 3";
	//   - a read of a secret: the lane of the secret.
	Object string
	// Action is a whole action, or a prefix that ends with a dot: "callback." picks all actions on callbacks.
	Action string
	// Actor is a part of the actor's name. Upper and lower case are equal.
	Actor string
	// From and To bound At: From <= At < To. Lists are sorted by id. The order of ids is that of the clocks
	// of the processes that wrote the entries.
	From, To int64
	// After continues a list after the entry with this id: the Next of the previous page, or any entry of it.
	// Lists are newest first.
	After string
	Limit int
}

// An AuditPage is a page of audit entries. Next is the After of the next page, and empty on the last page. A
// page with a Next may have fewer entries than the limit, or none; Next need not be the id of a listed entry.
type AuditPage struct {
	Entries []AuditEntry
	Next    string
}

// An AuditLink is a place in the audit chain. All projects share one chain. The zero value is the place
// before the first entry.
type AuditLink struct {
	// Seq numbers the entries from 1 without gaps. Hash covers the entry and, through the hash before, all
	// entries before it. It is in hexadecimal.
	Seq  int64
	Hash string
}

// auditEncoding is the version of the hashed encoding, and part of it. A change of the encoding needs a new
// version.
const auditEncoding = "dispatcher audit 1"

// String returns the link as text for an operator to keep, such as "12:0a1b…".
func (l AuditLink) String() string { return strconv.FormatInt(l.Seq, 10) + ":" + l.Hash }

// ParseAuditLink reads the text that String returns. Its error is worded for a FieldError.
func ParseAuditLink(text string) (AuditLink, error) {
	seq, hash, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(seq, 10, 64)
	sum, wrong := hex.DecodeString(hash)
	switch {
	case err != nil || wrong != nil || n < 0:
	case n == 0 && hash == "", n > 0 && len(sum) == sha256.Size:
		return AuditLink{n, hex.EncodeToString(sum)}, nil
	}
	return AuditLink{}, errors.New("must be SEQ:HASH, as the server returned it")
}

// Next returns the link of e if e follows l: an HMAC-SHA256 of the new number, l.Hash and all fields of the
// entry but Link. Each text has its length before it, so two different entries never have the same encoding.
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

// An AuditFault is the kind of a break in the audit chain.
type AuditFault string

// The faults of an audit chain.
const (
	// AuditChanged: the entry or its link was changed after it was chained.
	AuditChanged AuditFault = "changed"
	// AuditMissing: entries before this one were removed.
	AuditMissing AuditFault = "missing"
	// AuditCut: the last entry of the chain is not the one that its head names.
	AuditCut AuditFault = "cut"
	// AuditBeyond: entries have numbers above that of the head.
	AuditBeyond AuditFault = "beyond"
	// AuditUnexpected: the chain does not contain the link that the operator kept.
	AuditUnexpected AuditFault = "unexpected"
)

// An AuditBreak is the first entry that does not fit the chain.
type AuditBreak struct {
	Fault AuditFault
	// Seq is the number at which the chain breaks. ID is the entry with that number, empty if there is none.
	Seq int64
	ID  string
}

// CheckAudit checks that each entry follows the entry before it, and the first one the link after. It returns
// the link of the last good entry, and the first bad one. A nil break means that all entries are good.
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

// An AuditHead is the end of the audit chain.
type AuditHead struct {
	// Link is the link of the last entry, as stored apart from the entries.
	Link AuditLink
	// Last is the highest number that an entry has. It exceeds Link.Seq only if an entry was inserted by
	// other means than the chain.
	Last int64
	// Unchained is the number of entries that have no place in the chain yet, at most MaxUnchained.
	Unchained int
}

// MaxUnchained bounds AuditHead.Unchained.
const MaxUnchained = 10_000
