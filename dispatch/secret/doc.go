// Package secret keeps what signs and what must not stand in SQL in clear: the key ring with the master keys, the
// signing secrets of projects and endpoints, and sealed headers and templates.
//
// A ciphertext is bound to its project, owner, use and row: moved elsewhere it cannot be opened. A rotated secret
// signs beside its successor until its overlap ends. A secret that another process has rotated is in force here
// within 5 s.
//
// It does not decide who may see a secret, and it does not sign: package outbound does.
package secret
