// Package harness is what the black-box tests share: it builds the binary, starts, kills and asks dispatcher
// processes, has receivers that record what arrives, and keeps the ledger of what was accepted.
//
// A [Trial] ends with the verdict of package judge, which compares the ledger, SQL, the index and the
// arrivals. What it calls lost, early, doubled or overlapping was so at the receiver. The package imports
// none of the packages that are tested.
package harness
