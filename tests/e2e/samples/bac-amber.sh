echo "amber $1 after $(cat "namd.$1.out") on $QCG_PM_NPROCS"
